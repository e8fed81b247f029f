package longwire.getui;

/** The result of {@code queryTag}. */
public class QueryTagCmdMessage extends GTCmdMessage {
    QueryTagCmdMessage(String sn, int code) {
        super(PushConsts.QUERY_TAG_RESULT, sn, code);
    }
}
