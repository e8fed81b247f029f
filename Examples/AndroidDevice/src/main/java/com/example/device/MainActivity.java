package com.example.device;

import android.app.Activity;
import android.content.Intent;
import android.os.Bundle;

/** The app's only screen; its taps are read by the library. */
public class MainActivity extends Activity {
    @Override
    protected void onCreate(Bundle state) {
        super.onCreate(state);
        DeviceApplication.whenChanged = () -> setTitle(DeviceApplication.LINES.size() + " messages");
        DeviceApplication.whenChanged.run();
    }

    @Override
    protected void onNewIntent(Intent intent) {
        super.onNewIntent(intent);
        // The library reads the activity's intent when the activity resumes.
        setIntent(intent);
    }
}
