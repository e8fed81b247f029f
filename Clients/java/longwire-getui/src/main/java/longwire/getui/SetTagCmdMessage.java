package longwire.getui;

/** The result of {@code setTag}. */
public class SetTagCmdMessage extends GTCmdMessage {
    SetTagCmdMessage(String sn, int code) {
        super(PushConsts.SET_TAG_RESULT, sn, code);
    }
}
