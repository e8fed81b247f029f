package longwire.android;

import android.content.Context;
import longwire.client.VendorToken;

/**
 * The interface between this library and a vendor's push SDK. The app implements it; the README has an example for each
 * vendor.
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
