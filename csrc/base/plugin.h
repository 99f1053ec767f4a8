// SPDX-License-Identifier: MIT
// Finds and opens the core's plugins: shared objects named cnn_<name>.so that bring in a library
// which the core itself must not depend on.
//
// A plugin lies beside the module (or library) that contains this function. The environment may
// name another file: CNN_<NAME>_PLUGIN=/path/to/it.so, or none at all: CNN_<NAME>_PLUGIN=none. A
// plugin resolves no symbol of the core: it is opened RTLD_LOCAL, exports one entry symbol, and is
// handed tables of functions. The entry symbol takes an ABI number and refuses one that it does not
// serve.
#ifndef CNN_BASE_PLUGIN_H
#define CNN_BASE_PLUGIN_H

#include <stddef.h>

// Remembers where this module lies, while relative paths still mean what they meant when it was
// loaded. Called by cnn_init.
void cnn_plugin_locate(void);

// The address of `symbol` in the plugin `name` ("codec"), which then stays open for good; NULL when
// there is no such plugin or it can't be loaded, with the reason in `reason`. Callers ask once per
// process and remember the answer.
void *cnn_plugin_open(const char *name, const char *symbol, char *reason, size_t size);
// The same of the file `path`; with NULL that of the name. A path without a slash lies beside this
// module.
void *cnn_plugin_open_at(const char *name, const char *path, const char *symbol, char *reason,
                         size_t size);

#endif
