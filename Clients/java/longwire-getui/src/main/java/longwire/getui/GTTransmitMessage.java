package longwire.getui;

import longwire.client.ReceivedMessage;

/** A message for the app. */
public class GTTransmitMessage extends BaseMessage {
    private final String appid;
    private final byte[] payload;
    private final boolean isOffline;

    GTTransmitMessage(String appid, String clientId, String packageName, ReceivedMessage message) {
        this(
            appid, clientId, packageName, message.taskId().taskText(), message.messageId().toString(),
            message.payload(),
            message.isOffline());
    }

    GTTransmitMessage(
        String appid, String clientId, String packageName, String taskId, String messageId, byte[] payload,
        boolean isOffline
    ) {
        super(clientId, packageName, taskId, messageId);
        this.appid = appid;
        this.payload = payload;
        this.isOffline = isOffline;
    }

    /**
     * Returns the app's id.
     *
     * @return the appid
     */
    public String getAppid() {
        return appid;
    }

    /**
     * Returns the id under which reports name the payload.
     *
     * @return the messageid and the taskid together, because Longwire has no separate id for payloads
     */
    public String getPayloadId() {
        return getMessageId() + ":" + getTaskId();
    }

    /**
     * Returns the publisher's bytes.
     *
     * @return the payload
     */
    public byte[] getPayload() {
        return payload;
    }

    /**
     * Returns whether the device was away when the message was accepted.
     *
     * @return true if the user may have seen a notification
     */
    public boolean isOffline() {
        return isOffline;
    }
}
