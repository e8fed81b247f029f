package android.app;

import android.content.ContextWrapper;
import android.content.Intent;
import android.os.Bundle;

public class Activity extends ContextWrapper {
    private Intent intent = new Intent();

    public Activity() {
        super(null);
    }

    protected void onCreate(Bundle state) {}

    protected void onNewIntent(Intent newIntent) {}

    public void setTitle(CharSequence title) {}

    public Intent getIntent() {
        return intent;
    }

    public void setIntent(Intent newIntent) {
        intent = newIntent;
    }
}
