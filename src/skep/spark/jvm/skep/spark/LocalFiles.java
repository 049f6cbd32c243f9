package skep.spark;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local files, without a process for each. Hadoop runs `chmod` for every file it makes and `readlink` eight times for
 * every one it renames, unless its native library is there, which PySpark does not bring: some 60 ms of every batch of a stream.
 */
public final class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new Raw());
  }

  /** The same for those who come by a `FileContext`, as the checkpoints of streams do. */
  public static final class InContext extends ChecksumFs {
    public InContext(URI uri, Configuration settings) throws IOException, URISyntaxException {
      super(new RawInContext(settings));
    }
  }

  private static final class RawInContext extends DelegateToFileSystem {
    private static final int NO_PORT = -1;

    RawInContext(Configuration settings) throws IOException, URISyntaxException {
      super(FsConstants.LOCAL_FS_URI, new Raw(), settings, FsConstants.LOCAL_FS_URI.getScheme(), false);
    }

    @Override
    public int getUriDefaultPort() {
      return NO_PORT;
    }

    @Override
    public boolean isValidName(String name) {
      return true; // the system knows better which names it takes
    }
  }

  private static final class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      if (permission.getStickyBit()) { // Java has no word for it
        super.setPermission(path, permission);
        return;
      }
      String letters =
          permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL + permission.getOtherAction().SYMBOL;
      try {
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(letters));
      } catch (UnsupportedOperationException notHere) {
        super.setPermission(path, permission);
      }
    }

    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
      boolean isLink = Files.isSymbolicLink(pathToFile(path).toPath());
      return isLink ? super.getFileLinkStatus(path) : getFileStatus(path);
    }
  }
}
