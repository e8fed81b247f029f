// A device in Java: prints its cid at each connection, and each message. Clients/java/README.md runs it.
import java.io.File;
import longwire.client.ClientConfiguration;
import longwire.client.FileStateStore;
import longwire.client.Listener;
import longwire.client.LongwireClient;
import longwire.client.ReceivedMessage;
import longwire.client.WelcomeDetails;

public class Device implements Listener {
    public static void main(String[] words) throws Exception {
        ClientConfiguration gateway = new ClientConfiguration(words[0], Integer.parseInt(words[1]), words[2]);
        gateway.setAppSecret(words[3]).setTls(false);
        new LongwireClient(gateway, new FileStateStore(new File(words[4])), new Device()).start();
    }

    @Override
    public void onMessage(ReceivedMessage message) {
        System.out.println((message.isOffline() ? "queued: " : "live: ") + message.text());
        message.processed();
    }

    @Override
    public void onWelcomed(WelcomeDetails details) {
        System.out.println("cid " + details.cid());
    }
}
