package longwire.getui;

/** A tag of a device. */
public class Tag {
    private String name;

    /** Creates a tag without a name. */
    public Tag() {}

    /**
     * Sets the name.
     *
     * @param newName Chinese characters, letters, digits and {@code +-*_.}
     * @return this
     */
    public Tag setName(String newName) {
        name = newName;
        return this;
    }

    /**
     * Returns the name.
     *
     * @return the name, or {@code null}
     */
    public String getName() {
        return name;
    }
}
