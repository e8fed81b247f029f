package longwire.getui;

/** The device, the app and the ids of a message. */
public abstract class BaseMessage {
    private final String clientId;
    private final String packageName;
    private final String taskId;
    private final String messageId;

    BaseMessage(String clientId, String packageName, String taskId, String messageId) {
        this.clientId = clientId;
        this.packageName = packageName;
        this.taskId = taskId;
        this.messageId = messageId;
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
     * Returns the task's id.
     *
     * @return the taskid from the push API
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
}
