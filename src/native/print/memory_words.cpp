#include "native/print/prelude.h"

namespace ahead::native {
namespace {

constexpr Word memory_table[] = {
    // The lanes of the tail that exist, as the bits of a mask of AVX-512.
    {"tail_bits", "\nINLINE unsigned tail_bits(Tail m) { return (1u << m.n) - 1; }\n"},

    // Vectors as they lie in memory. A tail reads and writes nothing behind its end; its other
    // lanes are zeros.
    {"load_lanes", R"(
template <class V, class T>
INLINE V load_lanes(const T* p, Full) {
  V r;
  __builtin_memcpy(&r, p, sizeof(r));
  return r;
}
template <class V, class T>
INLINE V load_lanes(const T* p, Tail m) {
  V r{};
  for (int i = 0; i < m.n; ++i) r[i] = p[i];
  return r;
}
template <class V, class T>
INLINE V load_lanes(const T* p, long stride, Full) {
  V r;
  for (int i = 0; i < LANES; ++i) r[i] = p[i * stride];
  return r;
}
template <class V, class T>
INLINE V load_lanes(const T* p, long stride, Tail m) {
  V r{};
  for (int i = 0; i < m.n; ++i) r[i] = p[i * stride];
  return r;
}
)"},
    // In each lane another place along a dimension, whose elements are so far apart.
    {"Places", R"(
struct Places { I place; long apart, step; };
template <class V, class T>
INLINE V load_lanes(const T* p, Places at, Full) {
  V r;
  for (int i = 0; i < LANES; ++i) r[i] = p[at.place[i] * at.apart + i * at.step];
  return r;
}
template <class V, class T>
INLINE V load_lanes(const T* p, Places at, Tail m) {
  V r{};
  for (int i = 0; i < m.n; ++i) r[i] = p[at.place[i] * at.apart + i * at.step];
  return r;
}
)"},
    {"store_lanes", R"(
template <class V, class T>
INLINE void store_lanes(T* p, V v, Full) {
  __builtin_memcpy(p, &v, sizeof(v));
}
template <class V, class T>
INLINE void store_lanes(T* p, V v, Tail m) {
  for (int i = 0; i < m.n; ++i) p[i] = v[i];
}
template <class V, class T>
INLINE void store_lanes(T* p, V v, long stride, Full) {
  for (int i = 0; i < LANES; ++i) p[i * stride] = v[i];
}
template <class V, class T>
INLINE void store_lanes(T* p, V v, long stride, Tail m) {
  for (int i = 0; i < m.n; ++i) p[i * stride] = v[i];
}
)"},

    {"load_f32", R"(
template <class M>
INLINE F load_f32(const float* p, M m) { return load_lanes<F>(p, m); }
#if LANES == 16 && defined(__AVX512F__)
INLINE F load_f32(const float* p, Tail m) {
  return __builtin_ia32_loadups512_mask(p, F{}, tail_bits(m));
}
#elif LANES == 8 && defined(__AVX2__)
INLINE F load_f32(const float* p, Tail m) {
  return __builtin_ia32_maskloadps256((const F*)p, iota_i() < m.n);
}
#endif
template <class S, class M>
INLINE F load_f32(const float* p, S stride, M m) { return load_lanes<F>(p, stride, m); }
)"},
    {"store_f32", R"(
template <class M>
INLINE void store_f32(float* p, F v, M m) { store_lanes(p, v, m); }
#if LANES == 16 && defined(__AVX512F__)
INLINE void store_f32(float* p, F v, Tail m) {
  __builtin_ia32_storeups512_mask(p, v, tail_bits(m));
}
#elif LANES == 8 && defined(__AVX2__)
INLINE void store_f32(float* p, F v, Tail m) {
  __builtin_ia32_maskstoreps256((F*)p, iota_i() < m.n, v);
}
#endif
template <class M>
INLINE void store_f32(float* p, F v, long stride, M m) { store_lanes(p, v, stride, m); }
)"},
    {"load_f64", R"(
template <class M>
INLINE D load_f64(const double* p, M m) { return load_lanes<D>(p, m); }
#if LANES == 8 && defined(__AVX512F__)
INLINE D load_f64(const double* p, Tail m) {
  return __builtin_ia32_loadupd512_mask(p, D{}, tail_bits(m));
}
#endif
template <class S, class M>
INLINE D load_f64(const double* p, S stride, M m) { return load_lanes<D>(p, stride, m); }
)"},
    {"store_f64", R"(
template <class M>
INLINE void store_f64(double* p, D v, M m) { store_lanes(p, v, m); }
#if LANES == 8 && defined(__AVX512F__)
INLINE void store_f64(double* p, D v, Tail m) {
  __builtin_ia32_storeupd512_mask(p, v, tail_bits(m));
}
#endif
template <class M>
INLINE void store_f64(double* p, D v, long stride, M m) { store_lanes(p, v, stride, m); }
)"},
    {"load_i64", R"(
template <class M>
INLINE L load_i64(const long* p, M m) { return load_lanes<L>(p, m); }
template <class S, class M>
INLINE L load_i64(const long* p, S stride, M m) { return load_lanes<L>(p, stride, m); }
)"},
    {"store_i64", R"(
template <class M>
INLINE void store_i64(long* p, L v, M m) { store_lanes(p, v, m); }
template <class M>
INLINE void store_i64(long* p, L v, long stride, M m) { store_lanes(p, v, stride, m); }
)"},
    // Whole numbers that lie in the range of int.
    {"load_index", R"(
INLINE I load_index(const long* p, long stride, Full) {
  I r;
  for (int i = 0; i < LANES; ++i) r[i] = (int)p[i * stride];
  return r;
}
INLINE I load_index(const long* p, long stride, Tail m) {
  I r{};
  for (int i = 0; i < m.n; ++i) r[i] = (int)p[i * stride];
  return r;
}
template <class M>
INLINE I load_index(const long* p, M m) { return load_index(p, 1, m); }
)"},
    {"load_i32", R"(
template <class M>
INLINE I load_i32(const int* p, M m) { return load_lanes<I>(p, m); }
template <class S, class M>
INLINE I load_i32(const int* p, S stride, M m) { return load_lanes<I>(p, stride, m); }
)"},
    {"store_i32", R"(
template <class M>
INLINE void store_i32(int* p, I v, M m) { store_lanes(p, v, m); }
template <class M>
INLINE void store_i32(int* p, I v, long stride, M m) { store_lanes(p, v, stride, m); }
)"},

    // Narrower numbers are widened to the lanes of I, and wrap around when they are stored.
    {"load_i16", R"(
template <class... M>
INLINE I load_i16(const short* p, M... m) {
  return __builtin_convertvector(load_lanes<I16>(p, m...), I);
}
)"},
    {"load_i8", R"(
template <class... M>
INLINE I load_i8(const signed char* p, M... m) {
  return __builtin_convertvector(load_lanes<I8>(p, m...), I);
}
)"},
    {"load_u8", R"(
template <class... M>
INLINE I load_u8(const unsigned char* p, M... m) {
  return __builtin_convertvector(load_lanes<U8>(p, m...), I);
}
)"},
    {"store_i16", R"(
template <class... M>
INLINE void store_i16(short* p, I v, M... m) {
  store_lanes(p, __builtin_convertvector(v, I16), m...);
}
)"},
    {"store_i8", R"(
template <class... M>
INLINE void store_i8(signed char* p, I v, M... m) {
  store_lanes(p, __builtin_convertvector(v, I8), m...);
}
)"},
    {"store_u8", R"(
template <class... M>
INLINE void store_u8(unsigned char* p, I v, M... m) {
  store_lanes(p, __builtin_convertvector(v, U8), m...);
}
)"},

    // Booleans are masks in registers, 0 or 1 in memory.
    {"load_bool", R"(
template <class... M>
INLINE I load_bool(const bool* p, M... m) {
  return __builtin_convertvector(load_lanes<I8>((const signed char*)p, m...), I) != 0;
}
)"},
    {"store_bool", R"(
template <class... M>
INLINE void store_bool(bool* p, I mask, M... m) {
  store_lanes((signed char*)p, __builtin_convertvector(mask & 1, I8), m...);
}
)"},

    // Rounds to nearest, ties to even; a NaN becomes the one that ATen makes of it.
    {"bf16_bits", R"(
INLINE U bf16_bits(F x) {
  const U bits = (U)x;
  const U rounded = (bits + (bits >> 16 & 1) + 0x7fff) >> 16;
  return x == x ? rounded : 0x7fc0 - U{};
}
)"},
    {"round_bf16", "\nINLINE F round_bf16(F x) { return (F)(bf16_bits(x) << 16); }\n"},
    {"load_bf16", R"(
template <class... M>
INLINE F load_bf16(const unsigned short* p, M... m) {
  return (F)(__builtin_convertvector(load_lanes<U16>(p, m...), U) << 16);
}
)"},
    {"store_bf16", R"(
template <class... M>
INLINE void store_bf16(unsigned short* p, F v, M... m) {
  store_lanes(p, __builtin_convertvector(bf16_bits(v), U16), m...);
}
)"},

    {"f16_to_f", R"(
INLINE F f16_to_f(U16 x) {
#if LANES == 16 && defined(__AVX512F__)
  return __builtin_ia32_vcvtph2ps512_mask((I16)x, F{}, -1, 4);
#elif LANES == 8 && defined(__F16C__) && HAS(__builtin_ia32_vcvtph2ps256)
  return __builtin_ia32_vcvtph2ps256((I16)x);
#else
  // The exponent is biased by 15 rather than 127: a product puts that right, for denormals too.
  const U bits = __builtin_convertvector(x, U);
  const U magnitude = (bits & 0x7fff) << 13;
  const U scaled = (U)((F)magnitude * 0x1p112f);
  const U infinite = magnitude | 0x7f800000;
  return (F)((magnitude >= 0x0f800000 ? infinite : scaled) | (bits & 0x8000) << 16);
#endif
}
)"},
    {"f_to_f16", R"(
INLINE U16 f_to_f16(F x) {
#if LANES == 16 && defined(__AVX512F__)
  return (U16)__builtin_ia32_vcvtps2ph512_mask(x, 0, I16{}, -1);
#elif LANES == 8 && defined(__F16C__)
  return (U16)__builtin_ia32_vcvtps2ph256(x, 0);
#else
  const U bits = (U)x;
  const U magnitude = bits & 0x7fffffff;
  const U normal = (magnitude - (112 << 23) + (magnitude >> 13 & 1) + 0xfff) >> 13;
  const U denormal = (U)((F)magnitude + 0.5f) - 0x3f000000;
  const U special = magnitude > 0x7f800000 ? 0x7e00 - U{} : 0x7c00 - U{};
  const U finite = magnitude < 0x38800000 ? denormal : normal;
  const U half = (magnitude >= 0x47800000 ? special : finite) | (bits >> 16 & 0x8000);
  return __builtin_convertvector(half, U16);
#endif
}
)"},
    {"round_f16", "\nINLINE F round_f16(F x) { return f16_to_f(f_to_f16(x)); }\n"},
    {"load_f16", R"(
template <class... M>
INLINE F load_f16(const unsigned short* p, M... m) {
  return f16_to_f(load_lanes<U16>(p, m...));
}
)"},
    {"store_f16", R"(
template <class... M>
INLINE void store_f16(unsigned short* p, F v, M... m) {
  store_lanes(p, f_to_f16(v), m...);
}
)"},
};

}  // namespace

std::span<const Word> memory_words() {
  return memory_table;
}

}  // namespace ahead::native
