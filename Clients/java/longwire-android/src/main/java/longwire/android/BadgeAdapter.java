package longwire.android;

import android.content.Context;

/**
 * A phone's launcher that shows a number on the app's icon. Android itself has no call for that; each vendor has its
 * own.
 */
public interface BadgeAdapter {
    /**
     * Shows the number.
     *
     * @param context the app
     * @param number the number, or 0 for none
     */
    void show(Context context, int number);
}
