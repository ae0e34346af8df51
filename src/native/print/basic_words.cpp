#include "native/print/prelude.h"

// Loops over lanes become single instructions in GCC and Clang from -O2 on; where they do not, or
// where the names of an instruction differ between the two, the other form is chosen by what the
// compiler says it has.

namespace ahead::native {
namespace {

constexpr Word basic_table[] = {
    {"INLINE", R"(
#define INLINE static inline __attribute__((always_inline))
#define CALLED static __attribute__((noinline))
)"},
    {"VECTOR", R"(
#define VECTOR(type, name) typedef type name __attribute__((vector_size(LANES * sizeof(type))))
)"},
    {"HAS", R"(
#ifdef __has_builtin
#define HAS(name) __has_builtin(name)
#else
#define HAS(name) 0
#endif
)"},
    {"F", "\nVECTOR(float, F);\n"},
    {"I", "\nVECTOR(int, I);\n"},
    {"U", "\nVECTOR(unsigned, U);\n"},
    {"D", "\nVECTOR(double, D);\n"},
    {"L", "\nVECTOR(long, L);\n"},
    {"UL", "\nVECTOR(unsigned long, UL);\n"},
    {"I8", "\nVECTOR(signed char, I8);\n"},
    {"U8", "\nVECTOR(unsigned char, U8);\n"},
    {"I16", "\nVECTOR(short, I16);\n"},
    {"U16", "\nVECTOR(unsigned short, U16);\n"},

    {"Full", "\nstruct Full {};\n"},
    {"Tail", "\nstruct Tail { int n; };\n"},

    // x - 0 and not 0 + x, which would lose the sign of zeros.
    {"set_f", "\nINLINE F set_f(float x) { return x - F{}; }\n"},
    {"set_d", "\nINLINE D set_d(double x) { return x - D{}; }\n"},
    {"set_i", "\nINLINE I set_i(int x) { return x - I{}; }\n"},
    {"set_l", "\nINLINE L set_l(long x) { return x - L{}; }\n"},
    {"iota_i", R"(
INLINE I iota_i() {
  I r;
  for (int i = 0; i < LANES; ++i) r[i] = i;
  return r;
}
)"},
    {"iota_l", R"(
INLINE L iota_l() {
  L r;
  for (int i = 0; i < LANES; ++i) r[i] = i;
  return r;
}
)"},

    {"select", R"(
INLINE F select(I mask, F a, F b) { return mask ? a : b; }
INLINE I select(I mask, I a, I b) { return mask ? a : b; }
)"},
    {"select",
     R"(
INLINE D select(L mask, D a, D b) { return mask ? a : b; }
INLINE L select(L mask, L a, L b) { return mask ? a : b; }
)",
     true},

    // Conversions between vectors of lanes. Masks are converted by mask_i and mask_l, and become 0
    // and 1 by from_mask.
    {"to_f", R"(
INLINE F to_f(F x) { return x; }
INLINE F to_f(I x) { return __builtin_convertvector(x, F); }
)"},
    {"to_f",
     R"(
INLINE F to_f(D x) { return __builtin_convertvector(x, F); }
INLINE F to_f(L x) { return __builtin_convertvector(x, F); }
)",
     true},
    {"to_i", R"(
INLINE I to_i(F x) { return __builtin_convertvector(x, I); }
INLINE I to_i(I x) { return x; }
)"},
    {"to_i",
     R"(
INLINE I to_i(D x) { return __builtin_convertvector(x, I); }
INLINE I to_i(L x) { return __builtin_convertvector(x, I); }
)",
     true},
    {"to_d", R"(
INLINE D to_d(F x) { return __builtin_convertvector(x, D); }
INLINE D to_d(I x) { return __builtin_convertvector(x, D); }
INLINE D to_d(D x) { return x; }
INLINE D to_d(L x) { return __builtin_convertvector(x, D); }
)"},
    {"to_l", R"(
INLINE L to_l(F x) { return __builtin_convertvector(x, L); }
INLINE L to_l(I x) { return __builtin_convertvector(x, L); }
INLINE L to_l(D x) { return __builtin_convertvector(x, L); }
INLINE L to_l(L x) { return x; }
)"},
    {"wrap_i8", "\nINLINE I wrap_i8(I x) { return (x << 24) >> 24; }\n"},
    {"wrap_u8", "\nINLINE I wrap_u8(I x) { return x & 255; }\n"},
    {"wrap_i16", "\nINLINE I wrap_i16(I x) { return (x << 16) >> 16; }\n"},
    {"to_mask", R"(
INLINE I to_mask(F x) { return x != 0.f; }
INLINE I to_mask(I x) { return x != 0; }
)"},
    {"to_mask",
     R"(
INLINE L to_mask(D x) { return x != 0.; }
INLINE L to_mask(L x) { return x != 0; }
)",
     true},
    {"mask_i", R"(
INLINE I mask_i(I mask) { return mask; }
)"},
    {"mask_i",
     R"(
INLINE I mask_i(L mask) { return __builtin_convertvector(mask, I); }
)",
     true},
    {"mask_l", R"(
INLINE L mask_l(I mask) { return __builtin_convertvector(mask, L); }
INLINE L mask_l(L mask) { return mask; }
)"},
    {"from_mask", R"(
INLINE I from_mask(I mask) { return mask & 1; }
)"},
    {"from_mask",
     R"(
INLINE L from_mask(L mask) { return mask & 1; }
)",
     true},
    {"any", R"(
INLINE bool any(I mask) {
#if LANES == 16 && defined(__AVX512DQ__)
  return __builtin_ia32_cvtd2mask512(mask) != 0;
#elif LANES == 8 && defined(__AVX2__)
  typedef long long M __attribute__((vector_size(32)));
  return !__builtin_ia32_ptestz256((M)mask, (M)mask);
#else
  int all = 0;
  for (int i = 0; i < LANES; ++i) all |= mask[i];
  return all != 0;
#endif
}
)"},
    {"any",
     R"(
INLINE bool any(L mask) {
  long all = 0;
  for (int i = 0; i < LANES; ++i) all |= mask[i];
  return all != 0;
}
)",
     true},
};

}  // namespace

std::span<const Word> basic_words() {
  return basic_table;
}

}  // namespace ahead::native
