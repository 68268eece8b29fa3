/* A namespace on several servers, for programs in C. Link with -lcanopy_c.
 *
 * Each function returns 0 or more, or the negative number of an error (-ENOENT).
 * canopy_strerror() returns a message for it. Paths begin at the root of the
 * namespace, with or without a slash, and no symbolic link in them is followed.
 * Functions can be called by any number of threads at once, except that nothing
 * may use a connection or a file that is being closed. After fork(2), a child
 * connects anew: the threads of a connection stay with the parent.
 *
 * Modes are given as they are: the umask of the process does not count. New
 * files belong to the effective user and group of the process. */
#ifndef CANOPY_H
#define CANOPY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct canopy canopy;           /* a connection to a namespace */
typedef struct canopy_file canopy_file; /* an open file */

/* Connects to a namespace: by the addresses of processes, as in
 * "canopy://10.1.0.5:7040,10.1.0.6:7040", or by its place, as in "/gpfs/ns".
 * `certificate` is the file of a certificate of a user or of the servers; NULL
 * needs none on loopback. `storage` is the place of its storage as this machine
 * knows it; NULL means as the servers know it, and "none" does without contents
 * of large files. */
int canopy_connect(const char *name, const char *certificate, const char *storage,
                   canopy **connection);

/* Sends everything that was written, and frees the connection, even if that
 * fails. Files have to be closed before. */
int canopy_disconnect(canopy *connection);

/* Attributes of a file, as lstat(2) returns them. */
int canopy_stat(canopy *connection, const char *path, struct stat *attributes);

/* Makes an empty regular file; -EEXIST if there is something of this name. */
int canopy_create(canopy *connection, const char *path, mode_t mode);
int canopy_mkdir(canopy *connection, const char *path, mode_t mode);
int canopy_unlink(canopy *connection, const char *path);
int canopy_rmdir(canopy *connection, const char *path);

/* Renames as rename(2) does: what has the new name is replaced. */
int canopy_rename(canopy *connection, const char *from, const char *to);

/* Calls `each` with every entry of a directory but "." and "..", in no order,
 * until it returns another value than 0. */
typedef int (*canopy_each)(void *context, const char *name, const struct stat *attributes);
int canopy_readdir(canopy *connection, const char *path, canopy_each each, void *context);

/* Opens a regular file. Flags are O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT,
 * O_EXCL and O_TRUNC. Others than O_CLOEXEC are -EINVAL. */
int canopy_open(canopy *connection, const char *path, int flags, mode_t mode, canopy_file **file);

/* Return the number of bytes: fewer than `count` only at the end of the file. */
ssize_t canopy_pread(canopy_file *file, void *bytes, size_t count, uint64_t offset);
ssize_t canopy_pwrite(canopy_file *file, const void *bytes, size_t count, uint64_t offset);

/* Makes the file, and all changes of the connection before, outlast a crash. */
int canopy_fsync(canopy_file *file);

/* Sends what was written, and frees the file, even if that fails. */
int canopy_close(canopy_file *file);

/* A message for an error. It is valid until this thread calls a function of
 * the library again. */
const char *canopy_strerror(int error);

#ifdef __cplusplus
}
#endif

#endif
