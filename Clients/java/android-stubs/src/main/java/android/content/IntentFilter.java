package android.content;

import java.util.ArrayList;
import java.util.List;

public class IntentFilter {
    public final List<String> actions = new ArrayList<>();

    public IntentFilter() {}

    public IntentFilter(String action) {
        actions.add(action);
    }

    public final void addAction(String action) {
        actions.add(action);
    }
}
