package longwire.getui;

/** A notification that was shown or tapped. */
public class GTNotificationMessage {
    private final String clientId;
    private final String packageName;
    private final String taskId;
    private final String messageId;
    private final String title;
    private final String content;
    private final String payload;

    GTNotificationMessage(
        String clientId, String packageName, String taskId, String messageId, String title, String content,
        String payload
    ) {
        this.clientId = clientId;
        this.packageName = packageName;
        this.taskId = taskId;
        this.messageId = messageId;
        this.title = title;
        this.content = content;
        this.payload = payload;
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
     * @return the taskid
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
     * Returns the notification's title.
     *
     * @return the title; empty after a tap, because the tap's intent has no title
     */
    public String getTitle() {
        return title;
    }

    /**
     * Returns the notification's text.
     *
     * @return the text; empty after a tap, because the tap's intent has no text
     */
    public String getContent() {
        return content;
    }

    /**
     * Returns the publisher's payload.
     *
     * @return the payload, or an empty text
     */
    public String getPayload() {
        return payload;
    }
}
