package longwire.android;

import android.content.Context;
import android.net.ConnectivityManager;
import android.net.Network;
import android.net.NetworkCapabilities;

/**
 * Reports the default network by its kind, so that the client reconnects at once and learns a heartbeat for each kind.
 */
final class NetworkWatch extends ConnectivityManager.NetworkCallback {
    /** A receiver of the network's name. */
    interface Receiver {
        boolean networkChanged(String name);
    }

    private final ConnectivityManager manager;
    private final Receiver receiver;
    /** The last reported network and its kind; guarded by this object's monitor. */
    private Network network;
    private String kind;
    private boolean isRegistered;

    NetworkWatch(Context context, Receiver receiver) {
        manager = (ConnectivityManager) context.getSystemService(Context.CONNECTIVITY_SERVICE);
        this.receiver = receiver;
    }

    synchronized void begin() {
        if (!isRegistered) {
            manager.registerDefaultNetworkCallback(this);
            isRegistered = true;
        }
    }

    synchronized void end() {
        if (isRegistered) {
            isRegistered = false;
            manager.unregisterNetworkCallback(this);
        }
    }

    /**
     * Called after each {@code onAvailable}, and for each change of a network, most of which do not concern the
     * connection.
     */
    @Override
    public void onCapabilitiesChanged(Network changed, NetworkCapabilities capabilities) {
        String name = kind(capabilities);
        synchronized (this) {
            if (changed.equals(network) && name.equals(kind)) {
                return;
            }
            network = changed;
            kind = name;
        }
        receiver.networkChanged(name);
    }

    @Override
    public synchronized void onLost(Network lost) {
        network = null;
    }

    private static String kind(NetworkCapabilities capabilities) {
        // A VPN also has the transport below it, which decides how long a silent connection survives.
        if (capabilities.hasTransport(NetworkCapabilities.TRANSPORT_WIFI)) {
            return "wifi";
        }
        if (capabilities.hasTransport(NetworkCapabilities.TRANSPORT_CELLULAR)) {
            return "cellular";
        }
        if (capabilities.hasTransport(NetworkCapabilities.TRANSPORT_ETHERNET)) {
            return "ethernet";
        }
        return capabilities.hasTransport(NetworkCapabilities.TRANSPORT_VPN) ? "vpn" : "other";
    }
}
