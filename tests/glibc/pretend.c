/* Preloaded, makes the C library claim another version than its own. */
const char *gnu_get_libc_version(void);

const char *gnu_get_libc_version(void)
{
    return VERSION;
}
