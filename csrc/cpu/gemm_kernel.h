// SPDX-License-Identifier: MIT
// The parts of a matrix product that compute, for one type and one instruction set. cpu/gemm.c
// includes this file once for each pair, with these macros set, and gets a table `kernels`:
//
//   SIZE        4 for float, 8 for double; undefined again at the end
//   ISA(x)      x with a suffix for the instruction set
//   TARGET      the attribute that selects it
//   BYTES       of a vector
//   REGISTERS   of that size
//
// A tile is a piece of C that is held in registers while the sum over k runs. Loops over its rows
// and vectors have constant bounds and are unrolled.
#if SIZE == 4
#define T       float
#define INT     int32_t
#define KEEP    keep4
#define NAME(x) ISA(x##_f32)
#else
#define T       double
#define INT     int64_t
#define KEEP    keep8
#define NAME(x) ISA(x##_f64)
#endif

// TALL: rows of the largest packed tile, which is two vectors wide. With 32 registers, 12 rows
// leave room for the vectors of B and a broadcast element of A; with 16, it is 6. LOW: rows of the
// largest tile on operands as they lie. EACH_LOW: X(rows, w) for each tile of 2^w vectors; WIDE:
// the largest w for tiles of 1 ... rows rows. Few rows need width, or the sums are too few to hide
// the latency of an addition. DOTS: rows of the largest tile of dot products.
#define LOW 6
#if REGISTERS == 32
#define TALL         12
#define EACH_TALL(X) EACH_TO_12(X)
#define EACH_LOW(X)  EACH_LOW_16(X) X(4, 2) X(5, 2) X(6, 2) X(2, 3)
#define WIDE(rows)   ((rows) <= 2 ? 3 : 2)
#define DOTS         4
#else
#define TALL         6
#define EACH_TALL(X) EACH_TO_6(X)
#define EACH_LOW(X)  EACH_LOW_16(X)
#define WIDE(rows)   ((rows) == 1 ? 3 : (rows) <= 3 ? 2 : 1)
#define DOTS         3
#endif

#define LANES    (BYTES / SIZE)
#define V        NAME(vector)
#define U        NAME(unaligned)
#define BITS     NAME(bits)
#define BITS_U   NAME(bits_unaligned)
#define EIGHT    NAME(eight)
#define FOUR     NAME(four)
#define FOUR_U   NAME(four_unaligned)
#define INLINE   static inline __attribute__((always_inline)) TARGET
#define FUNCTION static TARGET

typedef T V __attribute__((vector_size(BYTES)));
typedef T U __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
typedef INT BITS __attribute__((vector_size(BYTES)));
typedef INT BITS_U __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
#if LANES == 16
typedef T EIGHT __attribute__((vector_size(8 * sizeof(T))));
#endif
typedef T FOUR __attribute__((vector_size(4 * sizeof(T))));
typedef T FOUR_U __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));

// C = alpha x + beta C for `rows` x `cols` elements of which x holds `stride` a row.
ONCE TARGET void NAME(put)(int64_t rows, int64_t cols, const T *x, int64_t stride, T alpha, T beta,
                           T *c, int64_t c_rs, int64_t c_cs) {
  for (int64_t i = 0; i < rows; i++, x += stride, c += c_rs) {
    if (beta == 0)
      for (int64_t j = 0; j < cols; j++) c[j * c_cs] = alpha * x[j];
    else
      for (int64_t j = 0; j < cols; j++) c[j * c_cs] = alpha * x[j] + beta * c[j * c_cs];
  }
}

// ---- Tiles of outer products

// `rows` x `cols` of C, cols <= vecs * LANES. A at a[i * a_rs + p * a_cs]; B's rows are contiguous,
// b_rs apart, and readable to the last lane.
INLINE void NAME(tile)(const int rows, const int vecs, int64_t k, const T *a, int64_t a_rs,
                       int64_t a_cs, const T *b, int64_t b_rs, T alpha, T beta, T *c, int64_t c_rs,
                       int64_t c_cs, int64_t cols) {
  V sum[TALL][8];
  UNROLL for (int i = 0; i < rows; i++) {
    UNROLL for (int v = 0; v < vecs; v++) sum[i][v] = (V){0};
  }
  for (int64_t p = 0; p < k; p++) {
    V row[8];
    UNROLL for (int v = 0; v < vecs; v++) row[v] = *(const U *)(b + p * b_rs + v * LANES);
    UNROLL for (int i = 0; i < rows; i++) {
      T x = a[i * a_rs + p * a_cs];
      UNROLL for (int v = 0; v < vecs; v++) sum[i][v] += x * row[v];
    }
  }
  if (c_cs != 1 || cols < vecs * LANES) {
    V x[TALL * 8];
    UNROLL for (int i = 0; i < rows; i++) {
      UNROLL for (int v = 0; v < vecs; v++) x[i * vecs + v] = sum[i][v];
    }
    NAME(put)(rows, cols, (const T *)x, vecs * LANES, alpha, beta, c, c_rs, c_cs);
  } else if (beta == 0) {
    UNROLL for (int i = 0; i < rows; i++) {
      U *to = (U *)(c + i * c_rs);
      UNROLL for (int v = 0; v < vecs; v++) to[v] = alpha * sum[i][v];
    }
  } else {
    UNROLL for (int i = 0; i < rows; i++) {
      U *to = (U *)(c + i * c_rs);
      UNROLL for (int v = 0; v < vecs; v++) to[v] = alpha * sum[i][v] + beta * to[v];
    }
  }
}

// From packed panels: A's holds `rows` elements for each p, B's one or two vectors.
typedef void (*NAME(packed_tile))(int64_t k, const T *a, const T *b, T alpha, T beta, T *c,
                                  int64_t c_rs, int64_t c_cs, int64_t cols);
#define PACKED(rows, vecs)                                                                         \
  FUNCTION void NAME(packed_##rows##_##vecs)(int64_t k, const T *a, const T *b, T alpha, T beta,   \
                                             T *c, int64_t c_rs, int64_t c_cs, int64_t cols) {     \
    NAME(tile)(rows, vecs, k, a, 1, rows, b, vecs * LANES, alpha, beta, c, c_rs, c_cs, cols);      \
  }
#define PACKED_BOTH(rows)  PACKED(rows, 1) PACKED(rows, 2)
#define PACKED_NAMES(rows) {NAME(packed_##rows##_1), NAME(packed_##rows##_2)},
EACH_TALL(PACKED_BOTH)
static const NAME(packed_tile) NAME(packed_tiles)[TALL][2] = {EACH_TALL(PACKED_NAMES)};

// From A as it is, and rows of B.
typedef void (*NAME(plain_tile))(int64_t k, const T *a, int64_t a_rs, int64_t a_cs, const T *b,
                                 int64_t b_rs, T alpha, T beta, T *c, int64_t c_rs, int64_t c_cs,
                                 int64_t cols);
#define PLAIN(rows, w)                                                                             \
  FUNCTION void NAME(plain_##rows##_##w)(int64_t k, const T *a, int64_t a_rs, int64_t a_cs,        \
                                         const T *b, int64_t b_rs, T alpha, T beta, T *c,          \
                                         int64_t c_rs, int64_t c_cs, int64_t cols) {               \
    NAME(tile)(rows, 1 << w, k, a, a_rs, a_cs, b, b_rs, alpha, beta, c, c_rs, c_cs, cols);         \
  }
#define PLAIN_NAME(rows, w) [rows - 1][w] = NAME(plain_##rows##_##w),
EACH_LOW(PLAIN)
static const NAME(plain_tile) NAME(plain_tiles)[LOW][4] = {EACH_LOW(PLAIN_NAME)};

// ---- Packing

// dst = the transpose of 4 x 4 elements.
INLINE void NAME(transpose)(const T *src, int64_t src_rs, T *dst, int64_t dst_rs) {
  FOUR a = *(const FOUR_U *)src, b = *(const FOUR_U *)(src + src_rs);
  FOUR c = *(const FOUR_U *)(src + 2 * src_rs), d = *(const FOUR_U *)(src + 3 * src_rs);
  FOUR ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  FOUR ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  FOUR cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  FOUR cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *(FOUR_U *)dst = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
  *(FOUR_U *)(dst + dst_rs) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
  *(FOUR_U *)(dst + 2 * dst_rs) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
  *(FOUR_U *)(dst + 3 * dst_rs) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
}

#if LANES >= 4
// dst[p * dst_rs + i] = src[i * src_rs + p] for i < LANES, p < 4: rows of whole vectors.
INLINE void NAME(transpose_lanes)(const T *src, int64_t src_rs, T *dst, int64_t dst_rs) {
  FOUR x[LANES];
  UNROLL for (int i = 0; i < LANES; i += 4)
      NAME(transpose)(src + i * src_rs, src_rs, (T *)&x[i], 4);
  UNROLL for (int p = 0; p < 4; p++) {
#if LANES == 16
    EIGHT low = __builtin_shufflevector(x[p], x[p + 4], 0, 1, 2, 3, 4, 5, 6, 7);
    EIGHT high = __builtin_shufflevector(x[p + 8], x[p + 12], 0, 1, 2, 3, 4, 5, 6, 7);
    *(U *)(dst + p * dst_rs) =
        __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#elif LANES == 8
    *(U *)(dst + p * dst_rs) = __builtin_shufflevector(x[p], x[p + 4], 0, 1, 2, 3, 4, 5, 6, 7);
#else
    *(U *)(dst + p * dst_rs) = x[p];
#endif
  }
}
#endif

// dst[p * stride + i] = src[i * across + p * along] for i < width and 0 for width <= i < stride,
// p < depth.
FUNCTION void NAME(pack)(void *to, int64_t width, int64_t stride, int64_t depth, const void *from,
                         int64_t across, int64_t along) {
  T *dst = to;
  const T *src = from;
  if (across == 1 && width == 2 * LANES) {
    for (int64_t p = 0; p < depth; p++) {
      V x = *(const U *)(src + p * along), y = *(const U *)(src + p * along + LANES);
      *(U *)(dst + p * stride) = x;
      *(U *)(dst + p * stride + LANES) = y;
    }
  } else if (across == 1 && width >= 4) {
    for (int64_t p = 0; p < depth; p++) {
      const T *s = src + p * along;
      T *d = dst + p * stride;
      for (int64_t i = 0; i + 4 <= width; i += 4) *(FOUR_U *)(d + i) = *(const FOUR_U *)(s + i);
      *(FOUR_U *)(d + width - 4) = *(const FOUR_U *)(s + width - 4);
    }
#if LANES >= 4
  } else if (along == 1 && width == 2 * LANES && depth >= 4) {
    for (int64_t q = 0; q < depth; q += 4) {
      int64_t p = q + 4 <= depth ? q : depth - 4;
      NAME(transpose_lanes)(src + p, across, dst + p * stride, stride);
      NAME(transpose_lanes)(src + LANES * across + p, across, dst + p * stride + LANES, stride);
    }
#endif
  } else if (along == 1 && width >= 4 && depth >= 4) {
    // A stretch of p at a time, so that the destination stays in the first cache. The last four
    // rows, and the last four p, may overlap those before: they are written twice.
    for (int64_t p0 = 0; p0 < depth; p0 += 64) {
      int64_t end = p0 + 64 < depth ? p0 + 64 : depth;
      for (int64_t i0 = 0; i0 < width; i0 += 4) {
        int64_t i = i0 + 4 <= width ? i0 : width - 4;
        for (int64_t q = p0; q < end; q += 4) {
          int64_t p = q + 4 <= depth ? q : depth - 4;
          NAME(transpose)(src + i * across + p, across, dst + p * stride + i, stride);
        }
      }
    }
  } else {
    for (int64_t p = 0; p < depth; p++)
      for (int64_t i = 0; i < width; i++) dst[p * stride + i] = src[i * across + p * along];
  }
  if (width == stride) return;
  for (int64_t p = 0; p < depth; p++)
    for (int64_t i = width; i < stride; i++) dst[p * stride + i] = 0;
}

// C = alpha * A B + beta * C where panels [i0, i1) of A and [j0, j1) of B meet. A and B are packed:
// panels of g->height rows and of 2 * LANES columns.
FUNCTION void NAME(block)(const product *g, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
  const T alpha = (T)g->alpha, beta = (T)g->beta;
  for (int64_t i = i0; i < i1; i++) {
    int64_t row = i * g->height, rows = g->m - row < g->height ? g->m - row : g->height;
    const T *a = (const T *)g->a + row * g->k;
    for (int64_t j = j0; j < j1; j++) {
      int64_t col = j * 2 * LANES, cols = g->n - col < 2 * LANES ? g->n - col : 2 * LANES;
      const T *b = (const T *)g->b + col * g->k;
      T *c = (T *)g->c + row * g->c_rs + col * g->c_cs;
      const NAME(packed_tile) tile = NAME(packed_tiles)[rows - 1][cols > LANES];
      tile(g->k, a, b, alpha, beta, c, g->c_rs, g->c_cs, cols);
    }
  }
}

// ---- Without packing

// Columns [j0, j1) of C, by rows of B. Where these are not contiguous, or a vector would reach over
// their end, they are brought in order on the stack first.
FUNCTION void NAME(outer)(const product *g, int64_t j0, int64_t j1) {
  enum { STACK = 16384 / sizeof(T) };
  _Alignas(64) T panel[STACK];
  const int64_t height = even_part(g->m, LOW);
  for (int64_t j = j0, cols; j < j1; j += cols) {
    int w = WIDE(height);
    while (w > 0 && j1 - j < (int64_t)LANES << w) w--;
    if (w == 0 && j1 - j > LANES && g->b_cs != 1) w = 1;
    const int64_t lanes = (int64_t)LANES << w;
    cols = j1 - j < lanes ? j1 - j : lanes;
    const bool direct = g->b_cs == 1 && cols == lanes;
    // Rows of B that stay in the second cache while the rows of A pass.
    const int64_t depth = direct ? 4096 / SIZE : STACK / lanes;
    for (int64_t p = 0; p < g->k || p == 0; p += depth) {
      int64_t k = g->k - p < depth ? g->k - p : depth, b_rs = g->b_rs;
      const T *a = (const T *)g->a + p * g->a_cs;
      const T *b = (const T *)g->b + p * g->b_rs + j * g->b_cs;
      const T alpha = (T)g->alpha, beta = p == 0 ? (T)g->beta : 1;
      if (!direct) {
        NAME(pack)(panel, cols, lanes, k, b, g->b_cs, g->b_rs);
        b = panel, b_rs = lanes;
      }
      for (int64_t i = 0; i < g->m; i += height) {
        int64_t rows = g->m - i < height ? g->m - i : height;
        T *c = (T *)g->c + i * g->c_rs + j * g->c_cs;
        const NAME(plain_tile) tile = NAME(plain_tiles)[rows - 1][w];
        tile(k, a + i * g->a_rs, g->a_rs, g->a_cs, b, b_rs, alpha, beta, c, g->c_rs, g->c_cs, cols);
      }
    }
  }
}

// out = the sums of the lanes of four vectors.
INLINE void NAME(sums)(const V *x, FOUR *out) {
  FOUR f[4];
  UNROLL for (int i = 0; i < 4; i++) {
#if LANES == 16
    EIGHT e = __builtin_shufflevector(x[i], x[i], 0, 1, 2, 3, 4, 5, 6, 7) +
              __builtin_shufflevector(x[i], x[i], 8, 9, 10, 11, 12, 13, 14, 15);
    f[i] = __builtin_shufflevector(e, e, 0, 1, 2, 3) + __builtin_shufflevector(e, e, 4, 5, 6, 7);
#elif LANES == 8
    f[i] = __builtin_shufflevector(x[i], x[i], 0, 1, 2, 3) +
           __builtin_shufflevector(x[i], x[i], 4, 5, 6, 7);
#elif LANES == 4
    f[i] = x[i];
#else
    f[i] = __builtin_shufflevector(x[i], (V){0}, 0, 1, 2, 3);
#endif
  }
  FOUR s = __builtin_shufflevector(f[0], f[1], 0, 4, 2, 6) +
           __builtin_shufflevector(f[0], f[1], 1, 5, 3, 7);
  FOUR t = __builtin_shufflevector(f[2], f[3], 0, 4, 2, 6) +
           __builtin_shufflevector(f[2], f[3], 1, 5, 3, 7);
  *out = __builtin_shufflevector(s, t, 0, 1, 4, 5) + __builtin_shufflevector(s, t, 2, 3, 6, 7);
}

// `rows` x `cols` of C, cols <= 4 * fours, where the rows of A and the columns of B are contiguous,
// k >= LANES.
INLINE void NAME(dot)(const int rows, const int fours, int64_t k, const T *a, int64_t a_rs,
                      const T *b, int64_t b_cs, T alpha, T beta, T *c, int64_t c_rs, int64_t c_cs,
                      int64_t cols) {
  V sum[4][8];
  const T *column[8];
  UNROLL for (int j = 0; j < 4 * fours; j++) column[j] = b + (j < cols ? j : cols - 1) * b_cs;
  UNROLL for (int i = 0; i < rows; i++) {
    UNROLL for (int j = 0; j < 4 * fours; j++) sum[i][j] = (V){0};
  }
  int64_t p = 0;
  for (; p + LANES <= k; p += LANES) {
    V x[4];
    UNROLL for (int i = 0; i < rows; i++) x[i] = *(const U *)(a + i * a_rs + p);
    UNROLL for (int j = 0; j < 4 * fours; j++) {
      V y = *(const U *)(column[j] + p);
      UNROLL for (int i = 0; i < rows; i++) sum[i][j] += x[i] * y;
    }
  }
  if (p < k) {
    // A vector that ends with the last element, without the lanes that have been summed.
    const BITS keep = *(const BITS_U *)(KEEP + 64 / SIZE - LANES + (k - p));
    p = k - LANES;
    V x[4];
    UNROLL for (int i = 0; i < rows; i++) x[i] = (V)(*(const BITS_U *)(a + i * a_rs + p) & keep);
    UNROLL for (int j = 0; j < 4 * fours; j++) {
      V y = (V)(*(const BITS_U *)(column[j] + p) & keep);
      UNROLL for (int i = 0; i < rows; i++) sum[i][j] += x[i] * y;
    }
  }
  FOUR out[8];
  UNROLL for (int i = 0; i < rows; i++) {
    UNROLL for (int f = 0; f < fours; f++) NAME(sums)(&sum[i][4 * f], &out[i * fours + f]);
  }
  if (c_cs == 1 && cols == 4 * fours && beta == 0) {
    UNROLL for (int i = 0; i < rows; i++) {
      UNROLL for (int f = 0; f < fours; f++) {
        *(FOUR_U *)(c + i * c_rs + 4 * f) = alpha * out[i * fours + f];
      }
    }
  } else {
    NAME(put)(rows, cols, (const T *)out, 4 * fours, alpha, beta, c, c_rs, c_cs);
  }
}

typedef void (*NAME(dot_tile))(int64_t k, const T *a, int64_t a_rs, const T *b, int64_t b_cs,
                               T alpha, T beta, T *c, int64_t c_rs, int64_t c_cs, int64_t cols);
#define DOT(rows, fours)                                                                           \
  FUNCTION void NAME(dot_##rows)(int64_t k, const T *a, int64_t a_rs, const T *b, int64_t b_cs,    \
                                 T alpha, T beta, T *c, int64_t c_rs, int64_t c_cs,                \
                                 int64_t cols) {                                                   \
    NAME(dot)(rows, fours, k, a, a_rs, b, b_cs, alpha, beta, c, c_rs, c_cs, cols);                 \
  }
DOT(1, 2)
DOT(2, 1)
DOT(3, 1)
#if DOTS == 4
DOT(4, 1)
#endif
static const NAME(dot_tile) NAME(dot_tiles)[DOTS] = {
    NAME(dot_1),
    NAME(dot_2),
    NAME(dot_3),
#if DOTS == 4
    NAME(dot_4),
#endif
};

// Columns [j0, j1) of C as dot products, where B's columns are contiguous, k >= LANES. A's rows are
// brought in order on the stack where they are not; then m is at most FEW.
FUNCTION void NAME(inner)(const product *g, int64_t j0, int64_t j1) {
  enum { DEPTH = 1024 / SIZE };
  _Alignas(64) T rows_of_a[FEW * (DEPTH + LANES)];
  const int64_t height = even_part(g->m, DOTS), width = height == 1 ? 8 : 4;
  const bool direct = g->a_cs == 1;
  for (int64_t p = 0, k; p < g->k; p += k) {
    k = direct || g->k - p < DEPTH + LANES ? g->k - p : DEPTH; // never less than LANES
    const T *a = (const T *)g->a + p * g->a_cs, *b = (const T *)g->b + p;
    const T alpha = (T)g->alpha, beta = p == 0 ? (T)g->beta : 1;
    int64_t a_rs = g->a_rs;
    if (!direct) {
      for (int64_t i = 0; i < g->m; i++)
        NAME(pack)(rows_of_a + i * k, 1, 1, k, a + i * a_rs, 1, g->a_cs);
      a = rows_of_a, a_rs = k;
    }
    for (int64_t j = j0, cols; j < j1; j += cols) {
      cols = j1 - j < width ? j1 - j : width;
      for (int64_t i = 0; i < g->m; i += height) {
        int64_t rows = g->m - i < height ? g->m - i : height;
        T *c = (T *)g->c + i * g->c_rs + j * g->c_cs;
        const NAME(dot_tile) tile = NAME(dot_tiles)[rows - 1];
        tile(k, a + i * a_rs, a_rs, b + j * g->b_cs, g->b_cs, alpha, beta, c, g->c_rs, g->c_cs,
             cols);
      }
    }
  }
}

// C = alpha * (the sum of `count` matrices m x n, one after the other) + beta * C.
FUNCTION void NAME(add)(const product *g, const void *parts, int64_t count) {
  const T alpha = (T)g->alpha, beta = (T)g->beta;
  for (int64_t i = 0; i < g->m; i++) {
    for (int64_t j = 0; j < g->n; j += LANES) {
      const T *x = (const T *)parts + i * g->n + j;
      int64_t cols = g->n - j < LANES ? g->n - j : LANES;
      T sum[LANES];
      for (int64_t v = 0; v < cols; v++) sum[v] = x[v];
      for (int64_t u = 1; u < count; u++) {
        x += g->m * g->n;
        for (int64_t v = 0; v < cols; v++) sum[v] += x[v];
      }
      T *c = (T *)g->c + i * g->c_rs + j * g->c_cs;
      NAME(put)(1, cols, sum, 0, alpha, beta, c, g->c_rs, g->c_cs);
    }
  }
}

static const kernels NAME(kernels) = {
    .tall = TALL,
    .columns = 2 * LANES,
    .lanes = LANES,
    .pack = NAME(pack),
    .block = NAME(block),
    .outer = NAME(outer),
    .inner = NAME(inner),
    .add = NAME(add),
};

#undef SIZE
#undef T
#undef INT
#undef KEEP
#undef LOW
#undef TALL
#undef EACH_TALL
#undef EACH_LOW
#undef WIDE
#undef DOTS
#undef LANES
#undef V
#undef U
#undef BITS
#undef BITS_U
#undef EIGHT
#undef FOUR
#undef FOUR_U
#undef INLINE
#undef FUNCTION
#undef PACKED
#undef PACKED_BOTH
#undef PACKED_NAMES
#undef PLAIN
#undef PLAIN_NAME
#undef DOT
#undef NAME
