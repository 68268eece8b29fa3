/* A program that uses each function of the library once or more. Its arguments are the name of a
 * namespace, and "user" if the process may not write into the root. */
#include "canopy.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(call, wanted)                                                                       \
    do {                                                                                           \
        long found = (long)(call);                                                                 \
        if (found != (long)(wanted)) {                                                             \
            fprintf(stderr, "%d: %s: %ld, %s\n", __LINE__, #call, found,                           \
                    canopy_strerror((int)found));                                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int count(void *context, const char *name, const struct stat *attributes) {
    int *seen = context;
    if (S_ISREG(attributes->st_mode) && strncmp(name, "file", 4) == 0)
        ++*seen;
    return 0;
}

static int stop(void *context, const char *name, const struct stat *attributes) {
    (void)name;
    (void)attributes;
    ++*(int *)context;
    return 1;
}

static void files(canopy *ns) {
    canopy_file *file;
    struct stat attributes;
    static char large[3000000], read_back[sizeof large];
    for (size_t at = 0; at < sizeof large; at++)
        large[at] = (char)(at * 7 % 251);
    EXPECT(canopy_open(ns, "dir/large", O_RDWR | O_CREAT | O_EXCL, 0640, &file), 0);
    EXPECT(canopy_pwrite(file, large, sizeof large, 0), sizeof large);
    EXPECT(canopy_fsync(file), 0);
    EXPECT(canopy_pread(file, read_back, sizeof read_back, 0), sizeof read_back);
    EXPECT(memcmp(large, read_back, sizeof large), 0);
    EXPECT(canopy_pread(file, read_back, 10, sizeof large - 3), 3);
    EXPECT(canopy_close(file), 0);
    EXPECT(canopy_open(ns, "dir/large", O_RDWR | O_CREAT | O_EXCL, 0640, &file), -EEXIST);
    EXPECT(canopy_open(ns, "/dir/large", O_RDONLY, 0, &file), 0);
    EXPECT(canopy_pwrite(file, large, 1, 0), -EBADF);
    EXPECT(canopy_unlink(ns, "dir/large"), 0);
    /* It stays as long as it is open. */
    EXPECT(canopy_pread(file, read_back, 5, 1000), 5);
    EXPECT(memcmp(large + 1000, read_back, 5), 0);
    EXPECT(canopy_close(file), 0);
    EXPECT(canopy_open(ns, "dir/small", O_WRONLY | O_CREAT, 0600, &file), 0);
    EXPECT(canopy_pwrite(file, "hello", 5, 0), 5);
    EXPECT(canopy_close(file), 0);
    EXPECT(canopy_stat(ns, "dir/small", &attributes), 0);
    EXPECT(attributes.st_size, 5);
    EXPECT(canopy_open(ns, "dir/small", O_WRONLY | O_TRUNC, 0, &file), 0);
    EXPECT(canopy_close(file), 0);
    EXPECT(canopy_stat(ns, "dir/small", &attributes), 0);
    EXPECT(attributes.st_size, 0);
    EXPECT(canopy_open(ns, "dir", O_RDONLY, 0, &file), -EISDIR);
    EXPECT(canopy_open(ns, "dir/small", O_RDONLY | O_APPEND, 0, &file), -EINVAL);
    EXPECT(canopy_unlink(ns, "dir/small"), 0);
}

/* Slashes and dots at the end, as Linux has them. */
static void ends_of_paths(canopy *ns) {
    canopy_file *file;
    struct stat attributes;
    EXPECT(canopy_create(ns, "dir/f", 0600), 0);
    EXPECT(canopy_mkdir(ns, "dir/d/", 0700), 0);
    EXPECT(canopy_stat(ns, "dir/d/.", &attributes), 0);
    EXPECT(canopy_stat(ns, "dir//./d//", &attributes), 0);
    EXPECT(canopy_stat(ns, "", &attributes), -ENOENT);
    EXPECT(canopy_stat(ns, ".", &attributes), 0);
    EXPECT(canopy_stat(ns, "dir/f/", &attributes), -ENOTDIR);
    EXPECT(canopy_stat(ns, "dir/f/.", &attributes), -ENOTDIR);
    EXPECT(canopy_mkdir(ns, "dir/d/.", 0700), -EEXIST);
    EXPECT(canopy_mkdir(ns, "dir/new/.", 0700), -ENOENT);
    EXPECT(canopy_open(ns, "dir/new/", O_WRONLY | O_CREAT, 0600, &file), -EISDIR);
    EXPECT(canopy_open(ns, "dir/f/", O_RDONLY, 0, &file), -ENOTDIR);
    EXPECT(canopy_unlink(ns, "dir/f/"), -ENOTDIR);
    EXPECT(canopy_unlink(ns, "dir/d/"), -EISDIR);
    EXPECT(canopy_rmdir(ns, "dir/d/."), -EINVAL);
    EXPECT(canopy_rename(ns, "dir/d/.", "dir/e"), -EBUSY);
    EXPECT(canopy_rename(ns, "dir/f", "dir/g/"), -ENOTDIR);
    EXPECT(canopy_rename(ns, "dir/d", "dir/e/"), 0);
    EXPECT(canopy_rmdir(ns, "dir/e/"), 0);
    EXPECT(canopy_unlink(ns, "dir/f"), 0);
}

int main(int argc, char **argv) {
    canopy *ns;
    struct stat attributes;
    int seen = 0;
    EXPECT(canopy_connect("canopy://nowhere", NULL, NULL, &ns), -EINVAL);
    EXPECT(canopy_connect(NULL, NULL, NULL, &ns), -EINVAL);
    EXPECT(canopy_connect(argv[1], NULL, argc > 2 ? "none" : NULL, &ns), 0);
    if (argc > 2) {
        EXPECT(canopy_mkdir(ns, "user", 0755), -EACCES);
        EXPECT(canopy_readdir(ns, "closed", count, &seen), -EACCES);
        EXPECT(canopy_mkdir(ns, "open/user", 0755), 0);
        EXPECT(canopy_stat(ns, "open/user", &attributes), 0);
        EXPECT(attributes.st_uid, 65534);
        EXPECT(canopy_disconnect(ns), 0);
        return 0;
    }
    EXPECT(canopy_mkdir(ns, "/dir", 0755), 0);
    EXPECT(canopy_mkdir(ns, "/dir", 0755), -EEXIST);
    for (int number = 0; number < 200; number++) {
        char path[64];
        snprintf(path, sizeof path, "dir/file%d", number);
        EXPECT(canopy_create(ns, path, 0644), 0);
    }
    EXPECT(canopy_readdir(ns, "dir", count, &seen), 0);
    EXPECT(seen, 200);
    EXPECT(canopy_readdir(ns, "dir", stop, &seen), 0);
    EXPECT(seen, 201);
    EXPECT(canopy_stat(ns, "dir/file7", &attributes), 0);
    EXPECT(attributes.st_mode, S_IFREG | 0644);
    EXPECT(canopy_rename(ns, "dir/file7", "moved"), 0);
    EXPECT(canopy_stat(ns, "dir/file7", &attributes), -ENOENT);
    EXPECT(canopy_stat(ns, "moved/inside", &attributes), -ENOTDIR);
    EXPECT(canopy_stat(ns, "/", &attributes), 0);
    EXPECT(canopy_unlink(ns, "moved"), 0);
    EXPECT(canopy_rmdir(ns, "dir"), -ENOTEMPTY);
    files(ns);
    ends_of_paths(ns);
    EXPECT(canopy_mkdir(ns, "open", 0777), 0);
    EXPECT(canopy_mkdir(ns, "closed", 0700), 0);
    EXPECT(canopy_stat(ns, NULL, &attributes), -EINVAL);
    EXPECT(strcmp(canopy_strerror(-EINVAL), "an argument is NULL"), 0);
    EXPECT(canopy_disconnect(ns), 0);
    puts("all is well");
    return 0;
}
