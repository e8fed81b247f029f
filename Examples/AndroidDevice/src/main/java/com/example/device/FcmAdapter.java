package com.example.device;

import android.content.Context;
import longwire.android.TokenReceiver;
import longwire.android.VendorAdapter;
import longwire.client.VendorToken;

/** FCM as a vendor. With Google's SDK in the app, two lines are those of Clients/java/longwire-android/README.md. */
class FcmAdapter implements VendorAdapter {
    @Override
    public VendorToken.Channel channel() {
        return VendorToken.Channel.FCM;
    }

    @Override
    public boolean isAvailable(Context context) {
        // This example has no SDK of a vendor.
        return false;
    }

    @Override
    public void requestToken(Context context, TokenReceiver receiver) {
        receiver.onFailure("this example has no SDK of a vendor");
    }
}
