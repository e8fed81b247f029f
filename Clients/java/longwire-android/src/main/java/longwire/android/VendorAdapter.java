package longwire.android;

import android.content.Context;
import longwire.client.VendorToken;

/**
 * A vendor's push SDK, as an app connects it: README has each of them in a few lines.
 *
 * <p>The SDKs are not part of this library, and nothing here looks for their classes.
 */
public interface VendorAdapter {
    /**
     * Returns the vendor.
     *
     * @return the channel of its tokens
     */
    VendorToken.Channel channel();

    /**
     * Returns whether this phone has the vendor's push service.
     *
     * @param context the app
     * @return true if a token can be requested
     */
    boolean isAvailable(Context context);

    /**
     * Requests a token. The SDK's answer goes to {@code receiver}, from any thread, or to {@link
     * LongwireDevice#onVendorToken} if the SDK answers in a service of the app.
     *
     * @param context the app
     * @param receiver the receiver of the token or the failure
     */
    void requestToken(Context context, TokenReceiver receiver);
}
