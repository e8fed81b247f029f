package longwire.getui;

/** A notification that was shown or tapped. */
public class GTNotificationMessage extends BaseMessage {
    private final String title;
    private final String content;
    private final String payload;

    GTNotificationMessage(
        String clientId, String packageName, String taskId, String messageId, String title, String content,
        String payload
    ) {
        super(clientId, packageName, taskId, messageId);
        this.title = title;
        this.content = content;
        this.payload = payload;
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
