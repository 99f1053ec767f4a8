// SPDX-License-Identifier: MIT
// Small functions in headers that compilers for other devices compile too, who define CNN_INLINE
// before they include them.
#ifndef CNN_BASE_INLINE_H
#define CNN_BASE_INLINE_H

#ifndef CNN_INLINE
#define CNN_INLINE static inline
#endif

#endif
