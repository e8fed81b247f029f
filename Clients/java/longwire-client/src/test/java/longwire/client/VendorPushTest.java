package longwire.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;

import java.util.Map;
import org.junit.Test;

/** The ids and the payload in a vendor's push. */
public class VendorPushTest {
    private static final String IDS = "RASS_1129_d70b06436930eafacf92e777:0d7001a228205b64b2c4648e8b98c2ed";

    @Test
    public void aTextIsRead() {
        VendorPush push = VendorPush.ofJson(
            "{\"other\": [1, {\"a\": null}, -2.5e3, []], \"_gmid_\": \"" + IDS
                + "\", \"payload\": \"a\\n\\u60a8\\\"\"}");
        assertEquals("0d7001a228205b64b2c4648e8b98c2ed", push.messageId().toString());
        assertEquals("RASS_1129_d70b06436930eafacf92e777", push.taskId().taskText());
        assertEquals("a\n您\"", push.payload());
        assertNull(VendorPush.of(IDS, null).payload());
    }

    @Test
    public void arraysAreRead() {
        Map<String, Object> members = JsonReader.object(
            "{\"tags\": [\"a\", 1, true, null, {}, [\"b\"], []], \"none\": []}");
        assertEquals("[a, 1, true, null, null, [b], []]", members.get("tags").toString());
        assertEquals("[]", members.get("none").toString());
    }

    @Test
    public void otherPushesAreNotFromTheGateway() {
        StringBuilder deep = new StringBuilder();
        for (int level = 0; level < 100_000; level++) {
            deep.append("{\"a\":");
        }
        for (String text : new String[] {
            "", "{", "[]", "null", "{}", "{\"_gmid_\": 1}", "{\"_gmid_\": \"x\"}", "{\"_gmid_\": \"" + IDS + "\"} x",
            "{\"_gmid_\": \"" + IDS + "\",", "{\"a\": \"\\u12\"}", "{\"a\": \"\\uzzzz\"}", "{\"a\": tru}",
            deep.toString(),
            "{\"a\": [1 2]}", "{\"a\" 1}", "{1: 2}",
        }) {
            assertNull(text.substring(0, Math.min(40, text.length())), VendorPush.ofJson(text));
        }
        assertNotNull(VendorPush.ofJson("{\"_gmid_\": \"" + IDS + "\"}"));
        assertNull("a message alone", VendorPush.of("0d7001a228205b64b2c4648e8b98c2ed", null));
    }
}
