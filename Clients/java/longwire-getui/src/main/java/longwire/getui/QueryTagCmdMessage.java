package longwire.getui;

import java.util.List;

/** The result of {@code queryTag}. */
public class QueryTagCmdMessage extends GTCmdMessage {
    private final Tag[] tags;

    QueryTagCmdMessage(String sn, int code, List<String> names) {
        super(PushConsts.QUERY_TAG_RESULT, sn, code);
        tags = new Tag[names.size()];
        for (int index = 0; index < tags.length; index++) {
            tags[index] = new Tag().setName(names.get(index));
        }
    }

    /**
     * Returns the device's tags.
     *
     * @return the tags; empty after a failure
     */
    public Tag[] getTags() {
        return tags.clone();
    }
}
