package android.net;

public final class NetworkCapabilities {
    public static final int TRANSPORT_CELLULAR = 0;
    public static final int TRANSPORT_WIFI = 1;
    public static final int TRANSPORT_ETHERNET = 3;
    public static final int TRANSPORT_VPN = 4;

    private final int transport;

    public NetworkCapabilities(int transport) {
        this.transport = transport;
    }

    public boolean hasTransport(int other) {
        return transport == other;
    }
}
