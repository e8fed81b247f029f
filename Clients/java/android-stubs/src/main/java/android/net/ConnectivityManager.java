package android.net;

public class ConnectivityManager {
    public static class NetworkCallback {
        public void onAvailable(Network network) {}

        public void onLost(Network network) {}

        public void onCapabilitiesChanged(Network network, NetworkCapabilities capabilities) {}
    }

    public NetworkCallback callback;

    public void registerDefaultNetworkCallback(NetworkCallback newCallback) {
        callback = newCallback;
    }

    public void unregisterNetworkCallback(NetworkCallback oldCallback) {
        callback = null;
    }
}
