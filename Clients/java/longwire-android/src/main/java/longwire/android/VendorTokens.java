package longwire.android;

import android.content.Context;
import android.os.Handler;
import longwire.client.VendorToken;

/** Requests the token of the phone's vendor, and repeats failed requests with growing delays. */
final class VendorTokens {
    /** The first and the longest delay before a repeated request. */
    static final long FIRST_DELAY = 10_000;
    static final long LONGEST_DELAY = 3_600_000;

    /** A receiver of tokens. */
    interface Receiver {
        boolean setToken(VendorToken token);
    }

    private final Handler handler;
    private final Receiver receiver;
    private long delay = FIRST_DELAY;

    VendorTokens(Handler handler, Receiver receiver) {
        this.handler = handler;
        this.receiver = receiver;
    }

    void request(Context context, VendorAdapter... adapters) {
        for (VendorAdapter adapter : adapters) {
            if (adapter.isAvailable(context)) {
                request(context, adapter);
                return;
            }
        }
    }

    private void request(Context context, VendorAdapter adapter) {
        adapter.requestToken(context, new TokenReceiver() {
            @Override
            public void onToken(String token) {
                handler.post(() -> received(adapter, token));
            }

            @Override
            public void onFailure(String reason) {
                handler.post(() -> {
                    handler.postDelayed(() -> request(context, adapter), delay);
                    delay = Math.min(2 * delay, LONGEST_DELAY);
                });
            }
        });
    }

    void received(VendorAdapter adapter, String token) {
        if (token == null || token.isEmpty()) {
            // An empty token would remove the gateway's; SDKs report one when they have none yet.
            return;
        }
        delay = FIRST_DELAY;
        receiver.setToken(new VendorToken(adapter.channel(), token));
    }
}
