package skep.spark;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
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
 * Hadoop's local files, without a process for each. PySpark does not bring Hadoop's native library. Without it, Hadoop runs `chmod`
 * for every file it makes and `readlink` eight times for every file it renames: some 60 ms of every batch of a stream.
 */
public final class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new Raw());
  }

  /** The same for callers that use a `FileContext`, such as the checkpoints of streams. */
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
      return true; // the operating system decides which names it takes
    }
  }

  private static final class Raw extends RawLocalFileSystem {
    private static final String MODE = "unix:mode";
    private static final int SET_ID_BITS = 06000;

    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      java.nio.file.Path file = pathToFile(path).toPath();
      if (!file.getFileSystem().supportedFileAttributeViews().contains("unix")) {
        super.setPermission(path, permission);
        return;
      }
      // As `chmod` does: a folder keeps its set-id bits, so that new files in it get its group.
      int kept = Files.isDirectory(file) ? (Integer) Files.getAttribute(file, MODE) & SET_ID_BITS : 0;
      Files.setAttribute(file, MODE, kept | permission.toShort());
    }

    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
      boolean isLink = Files.isSymbolicLink(pathToFile(path).toPath());
      return isLink ? super.getFileLinkStatus(path) : getFileStatus(path);
    }
  }
}
