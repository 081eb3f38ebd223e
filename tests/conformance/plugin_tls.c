/* A library with thread-local storage of its own. */
char *plugin_tls_here(void);

static __thread char mine[64];

char *plugin_tls_here(void)
{
    return mine;
}
