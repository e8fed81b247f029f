package longwire.getui;

import longwire.client.ReceivedMessage;

/** A message for the app. */
public class GTTransmitMessage {
    private final String appid;
    private final String clientId;
    private final String packageName;
    private final String taskId;
    private final String messageId;
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
        this.appid = appid;
        this.clientId = clientId;
        this.packageName = packageName;
        this.taskId = taskId;
        this.messageId = messageId;
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
     * Returns the device's id.
     *
     * @return the cid
     */
    public String getClientId() {
        return clientId;
    }

    /**
     * Returns the app's package.
     *
     * @return the package name
     */
    public String getPkgName() {
        return packageName;
    }

    /**
     * Returns the task.
     *
     * @return the taskid, as the push API returned it
     */
    public String getTaskId() {
        return taskId;
    }

    /**
     * Returns the message's id.
     *
     * @return the messageid
     */
    public String getMessageId() {
        return messageId;
    }

    /**
     * Returns the id under which reports name the payload.
     *
     * @return the messageid and the taskid, because Longwire has no separate id for payloads
     */
    public String getPayloadId() {
        return messageId + ":" + taskId;
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
