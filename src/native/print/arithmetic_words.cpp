#include "native/print/prelude.h"

namespace ahead::native {
namespace {

constexpr Word arithmetic_table[] = {
    // A float32 and a float64 function of one number, lane by lane.
    {"LANE_BY_LANE", R"(
#define LANE_BY_LANE(V, name, function)                      \
  INLINE V name(V x) {                                       \
    V r;                                                     \
    for (int i = 0; i < LANES; ++i) r[i] = function(x[i]);   \
    return r;                                                \
  }
)"},
    // Clang leaves loops of 16 square roots as they are.
    {"sqrt", R"(
#if HAS(__builtin_elementwise_sqrt)
INLINE F sqrt(F x) { return __builtin_elementwise_sqrt(x); }
#elif LANES == 16 && defined(__AVX512F__) && defined(__clang__)
INLINE F sqrt(F x) { return __builtin_ia32_sqrtps512(x, 4); }
#else
LANE_BY_LANE(F, sqrt, __builtin_sqrtf)
#endif
)"},
    {"sqrt",
     R"(
#if HAS(__builtin_elementwise_sqrt)
INLINE D sqrt(D x) { return __builtin_elementwise_sqrt(x); }
#elif LANES == 8 && defined(__AVX512F__) && defined(__clang__)
INLINE D sqrt(D x) { return __builtin_ia32_sqrtpd512(x, 4); }
#else
LANE_BY_LANE(D, sqrt, __builtin_sqrt)
#endif
)",
     true},
    {"rsqrt", "\nINLINE F rsqrt(F x) { return 1.f / sqrt(x); }\n"},
    {"rsqrt", "\nINLINE D rsqrt(D x) { return 1. / sqrt(x); }\n", true},
    {"floor", "\nLANE_BY_LANE(F, floor, __builtin_floorf)\n"},
    {"floor", "\nLANE_BY_LANE(D, floor, __builtin_floor)\n", true},
    {"ceil", "\nLANE_BY_LANE(F, ceil, __builtin_ceilf)\n"},
    {"ceil", "\nLANE_BY_LANE(D, ceil, __builtin_ceil)\n", true},
    {"trunc", "\nLANE_BY_LANE(F, trunc, __builtin_truncf)\n"},
    {"trunc", "\nLANE_BY_LANE(D, trunc, __builtin_trunc)\n", true},
    {"round", "\nLANE_BY_LANE(F, round, __builtin_rintf)\n"},
    {"round", "\nLANE_BY_LANE(D, round, __builtin_rint)\n", true},

    // What compilers cannot see through they do not make one instruction with what follows.
    {"rounded",
     R"(
#if defined(__AVX512F__) && LANES * 4 <= 64
INLINE F rounded(F x) { __asm__("" : "+v"(x)); return x; }
#elif (defined(__AVX__) && LANES * 4 <= 32) || (defined(__SSE2__) && LANES * 4 <= 16)
INLINE F rounded(F x) { __asm__("" : "+x"(x)); return x; }
#elif defined(__aarch64__) && LANES * 4 <= 16
INLINE F rounded(F x) { __asm__("" : "+w"(x)); return x; }
#else
INLINE F rounded(F x) { __asm__("" : "+m"(x)); return x; }
#endif
)"},
    {"rounded",
     R"(
#if defined(__AVX512F__) && LANES * 8 <= 64
INLINE D rounded(D x) { __asm__("" : "+v"(x)); return x; }
#elif (defined(__AVX__) && LANES * 8 <= 32) || (defined(__SSE2__) && LANES * 8 <= 16)
INLINE D rounded(D x) { __asm__("" : "+x"(x)); return x; }
#elif defined(__aarch64__) && LANES * 8 <= 16
INLINE D rounded(D x) { __asm__("" : "+w"(x)); return x; }
#else
INLINE D rounded(D x) { __asm__("" : "+m"(x)); return x; }
#endif
)",
     true},
    // Rounded once where there is an instruction for both, for which ATen's code is compiled, too.
    {"multiply_add", R"(
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
INLINE F multiply_add(F a, F b, F c) {
  F r;
  for (int i = 0; i < LANES; ++i) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return r;
}
#else
INLINE F multiply_add(F a, F b, F c) { return a * b + c; }
#endif
)"},
    {"multiply_add",
     R"(
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
INLINE D multiply_add(D a, D b, D c) {
  D r;
  for (int i = 0; i < LANES; ++i) r[i] = __builtin_fma(a[i], b[i], c[i]);
  return r;
}
#else
INLINE D multiply_add(D a, D b, D c) { return a * b + c; }
#endif
)",
     true},
    {"abs", R"(
INLINE F abs(F x) { return (F)((I)x & 0x7fffffff); }
INLINE I abs(I x) { return x < 0 ? -x : x; }
)"},
    {"abs",
     R"(
INLINE D abs(D x) { return (D)((L)x & 0x7fffffffffffffff); }
INLINE L abs(L x) { return x < 0 ? -x : x; }
)",
     true},
    {"copysign", R"(
INLINE F copysign(F x, F sign) {
  return (F)(((I)x & 0x7fffffff) | ((I)sign & (int)0x80000000));
}
)"},
    {"copysign",
     R"(
INLINE D copysign(D x, D sign) {
  return (D)(((L)x & 0x7fffffffffffffff) | ((L)sign & (long)0x8000000000000000));
}
)",
     true},
    // Of a number that is not negative.
    {"with_sign_of", R"(
INLINE F with_sign_of(F x, F sign) { return (F)((I)x | ((I)sign & (int)0x80000000)); }
)"},
    // The sign of a NaN is 0, as in ATen.
    {"sign", R"(
INLINE F sign(F x) { return __builtin_convertvector((x < 0.f) - (x > 0.f), F); }
INLINE I sign(I x) { return (x < 0) - (x > 0); }
)"},
    {"sign",
     R"(
INLINE D sign(D x) { return __builtin_convertvector((x < 0.) - (x > 0.), D); }
INLINE L sign(L x) { return (x < 0) - (x > 0); }
)",
     true},

    // If either number is a NaN, so is the result.
    {"maximum", R"(
INLINE F maximum(F a, F b) {
  const F larger = a > b ? a : b;
  return a == a ? larger : a;
}
INLINE I maximum(I a, I b) { return a > b ? a : b; }
)"},
    {"maximum",
     R"(
INLINE D maximum(D a, D b) {
  const D larger = a > b ? a : b;
  return a == a ? larger : a;
}
INLINE L maximum(L a, L b) { return a > b ? a : b; }
)",
     true},
    {"minimum", R"(
INLINE F minimum(F a, F b) {
  const F smaller = a < b ? a : b;
  return a == a ? smaller : a;
}
INLINE I minimum(I a, I b) { return a < b ? a : b; }
)"},
    {"minimum",
     R"(
INLINE D minimum(D a, D b) {
  const D smaller = a < b ? a : b;
  return a == a ? smaller : a;
}
INLINE L minimum(L a, L b) { return a < b ? a : b; }
)",
     true},
    // A bound, which is no NaN, is not crossed; a NaN remains. GCC does not see the instruction in
    // the
    // comparison with a constant.
    {"at_least", R"(
INLINE F at_least(F x, F bound) {
#if LANES == 16 && defined(__AVX512F__) && HAS(__builtin_ia32_maxps512_mask)
  return __builtin_ia32_maxps512_mask(bound, x, F{}, -1, 4);
#elif LANES == 8 && defined(__AVX2__) && HAS(__builtin_ia32_maxps256)
  return __builtin_ia32_maxps256(bound, x);
#else
  return bound > x ? bound : x;
#endif
}
INLINE I at_least(I x, I bound) { return bound > x ? bound : x; }
)"},
    {"at_least",
     R"(
INLINE D at_least(D x, D bound) {
#if LANES == 8 && defined(__AVX512F__) && HAS(__builtin_ia32_maxpd512_mask)
  return __builtin_ia32_maxpd512_mask(bound, x, D{}, -1, 4);
#elif LANES == 4 && defined(__AVX2__) && HAS(__builtin_ia32_maxpd256)
  return __builtin_ia32_maxpd256(bound, x);
#else
  return bound > x ? bound : x;
#endif
}
INLINE L at_least(L x, L bound) { return bound > x ? bound : x; }
)",
     true},
    {"at_most", R"(
INLINE F at_most(F x, F bound) {
#if LANES == 16 && defined(__AVX512F__) && HAS(__builtin_ia32_minps512_mask)
  return __builtin_ia32_minps512_mask(bound, x, F{}, -1, 4);
#elif LANES == 8 && defined(__AVX2__) && HAS(__builtin_ia32_minps256)
  return __builtin_ia32_minps256(bound, x);
#else
  return bound < x ? bound : x;
#endif
}
INLINE I at_most(I x, I bound) { return bound < x ? bound : x; }
)"},
    {"at_most",
     R"(
INLINE D at_most(D x, D bound) {
#if LANES == 8 && defined(__AVX512F__) && HAS(__builtin_ia32_minpd512_mask)
  return __builtin_ia32_minpd512_mask(bound, x, D{}, -1, 4);
#elif LANES == 4 && defined(__AVX2__) && HAS(__builtin_ia32_minpd256)
  return __builtin_ia32_minpd256(bound, x);
#else
  return bound < x ? bound : x;
#endif
}
INLINE L at_most(L x, L bound) { return bound < x ? bound : x; }
)",
     true},
    {"relu", "\nINLINE F relu(F x) { return at_least(x, F{}); }\n"},
    {"relu", "\nINLINE D relu(D x) { return at_least(x, D{}); }\n", true},

    // The lanes of a tail that do not exist become the identity of a reduction.
    {"keep_first", R"(
template <class V, class T>
INLINE V keep_first(V v, T, Full) { return v; }
template <class T>
INLINE F keep_first(F v, T identity, Tail m) {
  return iota_i() < m.n ? v : (float)identity - F{};
}
template <class T>
INLINE I keep_first(I v, T identity, Tail m) {
  return iota_i() < m.n ? v : (int)identity - I{};
}
)"},
    {"keep_first",
     R"(
template <class T>
INLINE D keep_first(D v, T identity, Tail m) {
  return iota_l() < m.n ? v : (double)identity - D{};
}
template <class T>
INLINE L keep_first(L v, T identity, Tail m) {
  return iota_l() < m.n ? v : (long)identity - L{};
}
)",
     true},

    // The lanes in another order: lane i becomes lane i ^ bit.
    {"exchange", R"(
INLINE F exchange(F v, int bit) {
#ifdef __clang__
  F r;
  for (int i = 0; i < LANES; ++i) r[i] = v[i ^ bit];
  return r;
#else
  return __builtin_shuffle(v, iota_i() ^ bit);
#endif
}
INLINE I exchange(I v, int bit) { return (I)exchange((F)v, bit); }
)"},
    {"exchange",
     R"(
INLINE D exchange(D v, int bit) {
#ifdef __clang__
  D r;
  for (int i = 0; i < LANES; ++i) r[i] = v[i ^ bit];
  return r;
#else
  return __builtin_shuffle(v, iota_l() ^ (long)bit);
#endif
}
INLINE L exchange(L v, int bit) { return (L)exchange((D)v, bit); }
)",
     true},
    // Reductions of a vector to a number: halves are combined until one lane is left, so the order
    // depends on the lanes alone.
    {"fold", R"(
template <class V, class Combine>
INLINE V fold(V v, Combine combine) {
  if (LANES > 32) v = combine(v, exchange(v, 32 % LANES));
  if (LANES > 16) v = combine(v, exchange(v, 16 % LANES));
  if (LANES > 8) v = combine(v, exchange(v, 8 % LANES));
  if (LANES > 4) v = combine(v, exchange(v, 4 % LANES));
  v = combine(v, exchange(v, 2));
  return combine(v, exchange(v, 1));
}
)"},
    {"sum_lanes", R"(
template <class V>
INLINE auto sum_lanes(V v) { return fold(v, [](V a, V b) { return a + b; })[0]; }
)"},
    {"product_lanes", R"(
template <class V>
INLINE auto product_lanes(V v) { return fold(v, [](V a, V b) { return a * b; })[0]; }
)"},
    {"max_lanes", R"(
template <class V>
INLINE auto max_lanes(V v) { return fold(v, [](V a, V b) { return maximum(a, b); })[0]; }
)"},
    {"min_lanes", R"(
template <class V>
INLINE auto min_lanes(V v) { return fold(v, [](V a, V b) { return minimum(a, b); })[0]; }
)"},
};

}  // namespace

std::span<const Word> arithmetic_words() {
  return arithmetic_table;
}

}  // namespace ahead::native
