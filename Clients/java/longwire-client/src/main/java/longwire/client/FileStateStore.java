package longwire.client;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.Set;
import java.security.SecureRandom;

/**
 * A store that keeps the state in one file and replaces the file as a whole.
 *
 * <p>A save writes and syncs a new file, renames it over the old one, and syncs the folder. A crash leaves either the
 * old state or the new one. The file holds the device's secret and is readable by its owner only. One client uses it at
 * a time: a save fails if another store has written the file since the last load or save.
 */
public final class FileStateStore implements StateStore {
    private static final String DRAFT = ".new";

    private final Path path;
    private final Path draft;
    /** The bytes that this store last read or wrote, or {@code null} before the first access. */
    private byte[] seen;

    /**
     * Creates a store.
     *
     * @param file the file. Its folder must exist. The store also creates files with this name plus {@code .new} and a
     *     suffix.
     */
    public FileStateStore(File file) {
        path = file.toPath().toAbsolutePath();
        long suffix = new SecureRandom().nextLong();
        draft = path.resolveSibling(path.getFileName() + DRAFT + Long.toUnsignedString(suffix, 36));
    }

    /**
     * Renames a damaged file ({@link LongwireException.Code#STATE_DAMAGED}) to its name plus {@code .damaged},
     * replacing an earlier one.
     *
     * <p>The next start registers a new device, and messages queued for the old one expire. Do not use this after
     * {@code STATE_UNREADABLE}: the file may be readable later.
     *
     * @throws LongwireException {@code STATE_UNWRITABLE}
     */
    public synchronized void setAside() throws LongwireException {
        try {
            Path target = path.resolveSibling(path.getFileName() + ".damaged");
            Files.move(path, target, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
            seen = null;
            syncFolder();
        } catch (IOException error) {
            throw failure("rename " + path, error);
        }
    }

    @Override
    public synchronized byte[] load() throws LongwireException {
        byte[] bytes = read();
        seen = bytes == null ? new byte[0] : bytes;
        return bytes == null ? null : bytes.clone();
    }

    private byte[] read() throws LongwireException {
        try (FileChannel channel = FileChannel.open(path, StandardOpenOption.READ)) {
            long size = channel.size();
            if (size > Limits.STATE_FILE_BYTE_COUNT) {
                throw new LongwireException(
                    LongwireException.Code.STATE_DAMAGED,
                    path + " has " + size + " bytes, more than any state; restore or remove it");
            }
            ByteBuffer buffer = ByteBuffer.allocate((int) size);
            while (buffer.hasRemaining() && channel.read(buffer) >= 0) {
                continue;
            }
            return Arrays.copyOf(buffer.array(), buffer.position());
        } catch (NoSuchFileException error) {
            return null;
        } catch (IOException error) {
            throw new LongwireException(
                LongwireException.Code.STATE_UNREADABLE, "cannot read " + path + ": " + reason(error), error);
        }
    }

    @Override
    public synchronized void save(byte[] state) throws LongwireException {
        // If the file is gone, it was removed on purpose, and this state is written.
        if (seen != null) {
            byte[] current = read();
            if (current != null && !Arrays.equals(current, seen)) {
                throw new LongwireException(
                    LongwireException.Code.STATE_UNWRITABLE, "another client has written " + path
                        + "; run one at a time");
            }
        }
        try {
            write(state);
            Files.move(draft, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
            seen = state.clone();
            syncFolder();
        } catch (IOException error) {
            throw failure("write " + path, error);
        } finally {
            try {
                // After a rename there is no draft any more.
                Files.deleteIfExists(draft);
            } catch (IOException error) {
                // A draft that cannot be removed is removed by the next start.
            }
        }
    }

    private void write(byte[] state) throws IOException {
        Set<StandardOpenOption> options =
            EnumSet.of(StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING, StandardOpenOption.WRITE);
        try (FileChannel channel = open(options)) {
            ByteBuffer buffer = ByteBuffer.wrap(state);
            while (buffer.hasRemaining()) {
                channel.write(buffer);
            }
            channel.force(true);
        }
    }

    private FileChannel open(Set<StandardOpenOption> options) throws IOException {
        if (path.getFileSystem().supportedFileAttributeViews().contains("posix")) {
            return FileChannel.open(
                draft, options, PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
        }
        return FileChannel.open(draft, options);
    }

    /** Syncs the folder; without this, a power loss could undo the rename and restore an old state. */
    private void syncFolder() throws IOException {
        if (File.separatorChar == '\\') {
            // Windows opens no folders, and NTFS has the rename in its journal.
            return;
        }
        try (FileChannel channel = FileChannel.open(path.getParent(), StandardOpenOption.READ)) {
            channel.force(true);
        }
    }

    /**
     * Removes the drafts of clients that were killed while they wrote; only the client that uses the file may call
     * this.
     */
    void removeDrafts() {
        String name = path.getFileName() + DRAFT;
        File[] found = path.getParent().toFile().listFiles((folder, file) -> {
            String rest = file.startsWith(name) ? file.substring(name.length()) : "";
            return rest.matches("[0-9a-z]{1,13}");
        });
        if (found == null) {
            return;
        }
        for (File file : found) {
            // A draft that cannot be removed stays until the next start.
            file.delete();
        }
    }

    private static LongwireException failure(String doing, IOException error) {
        return new LongwireException(
            LongwireException.Code.STATE_UNWRITABLE, "cannot " + doing + ": " + reason(error), error);
    }

    private static String reason(IOException error) {
        String reason = error instanceof FileSystemException
            ? ((FileSystemException) error).getReason() : error.getMessage();
        return reason == null ? error.getClass().getSimpleName() : reason;
    }
}
