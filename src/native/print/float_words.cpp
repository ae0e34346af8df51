#include "native/print/prelude.h"

// Polynomials are minimax approximations of ours for the intervals given. A product and a sum are
// one operation where the target has it; the constants of reductions are split so that they are
// exact without it, too.

namespace ahead::native {
namespace {

constexpr Word float_functions[] = {
    // x * 2^n for whole n, also where the result is infinite, denormal or zero.
    {"scale", R"(
INLINE F scale(F x, F n) {
#if LANES == 16 && defined(__AVX512VL__)
  return __builtin_ia32_scalefps512_mask(x, n, F{}, -1, 4);
#elif LANES == 8 && defined(__AVX512VL__)
  return __builtin_ia32_scalefps256_mask(x, n, F{}, -1);
#else
  const I k = __builtin_convertvector(n, I);
  const I half = k >> 1;
  return x * (F)((half + 127) << 23) * (F)((k - half + 127) << 23);
#endif
}
)"},
    // The whole number next to x, for |x| < 2^22.
    {"nearest", R"(
INLINE F nearest(F x) {
  return x + 0x1.8p23f - 0x1.8p23f;
}
)"},
    // 2^n for the whole number n next to x, for |n| <= 126: the bits of 2^23 + 2^22 + n end with n.
    {"Power", R"(
struct Power { F n, value; };
INLINE Power power_near(F x) {
  const F t = x + (0x1.8p23f + 127.f);
  return {t - (0x1.8p23f + 127.f), (F)((I)t << 23)};
}
)"},
    // exp(x) = 2^n exp(r) with |r| <= log(2) / 2, for x from -104 to 89. The power has two factors,
    // since 2^128 is no number and 2^-150 none of full precision.
    {"exp_bounded", R"(
INLINE F exp_bounded(F x) {
#if (LANES == 8 || LANES == 16) && defined(__AVX512VL__)
  const F n = nearest(x * 0x1.715476p+0f);
#else
  const F both = x * 0x1.715476p+0f + (0x1.8p23f + 254.f);
  const F half = x * 0x1.715476p-1f + (0x1.8p23f + 127.f);
  const F n = both - (0x1.8p23f + 254.f);
#endif
  const F r = x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;
  F p = r * 0x1.6a2352p-10f + 0x1.123a6cp-7f;
  p = p * r + 0x1.5558f4p-5f;
  p = p * r + 0x1.555490p-3f;
  p = p * r + 0x1.fffffcp-2f;
  p = p * r + 1.f;
  p = p * r + 1.f;
#if (LANES == 8 || LANES == 16) && defined(__AVX512VL__)
  return scale(p, n);
#else
  return p * (F)((I)half << 23) * (F)(((I)both - (I)half) << 23);
#endif
}
)"},
    // For x up to 89. What is too small for any number is set to zero: processors take a hundred
    // times as long to make it of denormal numbers, of which masks like -1e9 give many.
    {"exp_at_most_89", R"(
INLINE F exp_at_most_89(F x) {
  const I vanishes = x < -104.f;
  const F e = exp_bounded(vanishes ? F{} : x);
  return vanishes ? F{} : e;
}
)"},
    {"exp", "\nINLINE F exp(F x) { return exp_at_most_89(at_most(x, set_f(89.f))); }\n"},
    {"exp2", R"(
INLINE F exp2(F x) {
  const I vanishes = x < -151.f;
  const F bounded = at_most(vanishes ? F{} : x, set_f(129.f));
  const F n = nearest(bounded);
  const F r = bounded - n;
  F p = r * 0x1.41fbb0p-13f + 0x1.5f3e6ap-10f;
  p = p * r + 0x1.3b2d4ep-7f;
  p = p * r + 0x1.c6aee8p-5f;
  p = p * r + 0x1.ebfbdcp-3f;
  p = p * r + 0x1.62e430p-1f;
  p = p * r + 1.f;
  return vanishes ? F{} : scale(p, n);
}
)"},
    // exp(r) - 1 for |r| <= log(2) / 2.
    {"expm1_near_zero", R"(
INLINE F expm1_near_zero(F r) {
  F p = r * 0x1.6d99bcp-10f + 0x1.122880p-7f;
  p = p * r + 0x1.555486p-5f;
  p = p * r + 0x1.5554aep-3f;
  p = p * r + 0.5f;
  return p * (r * r) + r;
}
)"},
    {"expm1", R"(
INLINE F expm1(F x) {
  const F bounded = at_least(at_most(x, set_f(89.f)), set_f(-20.f));
  const Power power = power_near(bounded * 0x1.715476p+0f - 1.f);
  const F n = power.n + 1.f;
  const F e = expm1_near_zero(bounded - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f);
  // Half of it, since 2^128 is no number.
  const F result = 2.f * (e * power.value + (power.value - 0.5f));
  return x == 0.f ? x : result;
}
)"},
    // x = 2^e m with m from 0.75 to 1.5; e alone makes the logarithm of zeros, infinities, NaNs and
    // negative numbers what it should be.
    {"Parts", R"(
struct Parts { F m, e; };
INLINE Parts parts(F x) {
#if LANES == 16 && defined(__AVX512F__)
  const F m = __builtin_ia32_getmantps512_mask(x, 15, F{}, -1, 4);
  const F e = __builtin_ia32_getexpps512_mask(x, F{}, -1, 4);
  return {m, e - __builtin_ia32_getexpps512_mask(m, F{}, -1, 4)};
#elif LANES == 8 && defined(__AVX512VL__)
  const F m = __builtin_ia32_getmantps256_mask(x, 15, F{}, -1);
  const F e = __builtin_ia32_getexpps256_mask(x, F{}, -1);
  return {m, e - __builtin_ia32_getexpps256_mask(m, F{}, -1)};
#else
  const I denormal = x < 0x1p-126f;
  const I bits = (I)(denormal ? x * 0x1p24f : x);
  const I k = (bits - 0x3f400000) >> 23;
  const F e = __builtin_convertvector(k + (denormal & -24), F);
  const F infinity = set_f(__builtin_inff());
  const F special = x == 0.f ? -infinity : x > 0.f ? x : set_f(__builtin_nanf(""));
  return {(F)(bits - (k << 23)), (x > 0.f) & (x < infinity) ? e : special};
#endif
}
)"},
    // log(1 + f) for f from -0.25 to 0.5.
    {"log_near_one", R"(
INLINE F log_near_one(F f) {
  F p = f * 0x1.bb742cp-5f - 0x1.ee4798p-4f;
  p = p * f + 0x1.32dee0p-3f;
  p = p * f - 0x1.5887fap-3f;
  p = p * f + 0x1.99216cp-3f;
  p = p * f - 0x1.ffdd9ep-3f;
  p = p * f + 0x1.5555e6p-2f;
  p = p * f - 0x1.000014p-1f;
  return p * (f * f) + f;
}
)"},
    {"log", R"(
INLINE F log(F x) {
  const Parts part = parts(x);
  return part.e * 0x1.62e43p-1f + log_near_one(part.m - 1.f);
}
)"},
    {"log2", R"(
INLINE F log2(F x) {
  const Parts part = parts(x);
  return log_near_one(part.m - 1.f) * 0x1.715476p+0f + part.e;
}
)"},
    {"log10", R"(
INLINE F log10(F x) {
  const Parts part = parts(x);
  return part.e * 0x1.344136p-2f + log_near_one(part.m - 1.f) * 0x1.bcb7b2p-2f;
}
)"},
    // What 1 + x loses by rounding is added to the fraction.
    {"log1p", R"(
INLINE F log1p(F x) {
  const F sum = 1.f + x;
  const Parts part = parts(sum);
  const F lost = scale(x - (sum - 1.f), at_most(-part.e, set_f(127.f)));
  const F result = part.e * 0x1.62e43p-1f + log_near_one(part.m - 1.f + lost);
  const I special = (x == 0.f) | (x == __builtin_inff());
  return special ? x : result;
}
)"},
    // x / y for y from 1 to 2^100.
    {"quotient", R"(
INLINE F quotient(F x, F y) {
#if LANES == 16 && defined(__AVX512F__)
  const F inverse = __builtin_ia32_rcp14ps512_mask(y, F{}, -1);
  const F q = x * inverse;
  return (x - q * y) * inverse + q;
#else
  return x / y;
#endif
}
)"},
    {"sigmoid", R"(
INLINE F sigmoid(F x) {
  const F e = exp_at_most_89(-abs(x));
  return quotient(x < 0.f ? e : set_f(1.f), 1.f + e);
}
)"},
    // By expm1(-2|x|), which lies between -1 and 0.
    {"tanh", R"(
#if LANES == 16 && defined(__AVX512F__)
INLINE F tanh(F x) { return piecewise(x, 0x1.3fffffp3f, tanh_table); }
#else
INLINE F tanh(F x) {
  const F y = at_least(abs(x) * -2.f, set_f(-20.f));
  const Power power = power_near(y * 0x1.715476p+0f);
  const F r = y - power.n * 0x1.62e4p-1f - power.n * 0x1.7f7d1cp-20f;
  const F e = expm1_near_zero(r) * power.value + (power.value - 1.f);
  return copysign(quotient(e, e + 2.f), x);
}
#endif
)"},
    // x + x p(x^2) up to 1, and 1 - 2^p(x) beyond.
    {"erf", R"(
#if LANES == 16 && defined(__AVX512F__)
INLINE F erf(F x) { return piecewise(x, 0x1.ffffffp1f, erf_table); }
#elif LANES == 8 && defined(__AVX2__)
INLINE F erf(F x) { return erf_of_8(x); }
#else
INLINE F erf(F x) {
  const F a = at_most(abs(x), set_f(4.f));
  const F z = a * a;
  F p = z * 0x1.496a2ap-14f - 0x1.a3f6fcp-11f;
  p = p * z + 0x1.5405b2p-8f;
  p = p * z - 0x1.b7f90cp-6f;
  p = p * z + 0x1.ce2cf8p-4f;
  p = p * z - 0x1.81273ep-2f;
  p = p * z + 0x1.06eba8p-3f;
  const F near = p * a + a;
  F q = a * 0x1.19f320p-12f - 0x1.16b24ep-8f;
  q = q * a + 0x1.02182ap-5f;
  q = q * a - 0x1.30a4aep-3f;
  q = q * a - 0x1.d75f3ap-1f;
  q = q * a - 0x1.a0448cp+0f;
  q = q * a - 0x1.0252e4p-11f;
  const Power power = power_near(q);
  const F r = q - power.n;
  F e = r * 0x1.5bb9fcp-10f + 0x1.3cea9ep-7f;
  e = e * r + 0x1.c6b754p-5f;
  e = e * r + 0x1.ebf9bcp-3f;
  e = e * r + 0x1.62e42ap-1f;
  e = e * r + 1.f;
  const F far = 1.f - e * power.value;
  return with_sign_of(a > 1.f ? far : near, x);
}
#endif
)"},
    {"erfc", R"(
INLINE F erfc(F x) {
  F r;
  for (int i = 0; i < LANES; ++i) r[i] = (float)__builtin_erfc((double)x[i]);
  return r;
}
)"},
    // sin(x + quarter turns), by polynomials for -pi/4 to pi/4. Beyond 2^15, and where no
    // multiplication is exact, lane by lane.
    {"sin_of_turned", R"(
INLINE F sin_of_turned(F x, int turn) {
#if defined(__FMA__) || defined(__aarch64__)
  const F n = nearest(x * 0x1.45f306p-1f);
  F r = x - n * 0x1.921fb6p+0f;
  r = r + n * 0x1.777a5cp-25f;
  r = r + n * 0x1.ee59dap-50f;
  const F z = r * r;
  F s = z * -0x1.9947cap-13f + 0x1.11074cp-7f;
  s = s * z - 0x1.555546p-3f;
  s = s * (z * r) + r;
  F c = z * 0x1.99fc26p-16f - 0x1.6c0c76p-10f;
  c = c * z + 0x1.55554ap-5f;
  c = c * z - 0.5f;
  c = c * z + 1.f;
  const I quarter = __builtin_convertvector(n, I) + turn;
  const F turned = (quarter & 1) != 0 ? c : s;
  F result = (F)((I)turned ^ (quarter & 2) << 30);
  const bool far = any(abs(x) >= 0x1p15f);
#else
  F result;
  const bool far = true;
#endif
  if (__builtin_expect(far, 0))
    for (int i = 0; i < LANES; ++i)
      result[i] = (float)(turn ? __builtin_cos((double)x[i]) : __builtin_sin((double)x[i]));
  return result;
}
)"},
    {"sin", R"(
INLINE F sin(F x) {
  const F result = sin_of_turned(x, 0);
  return x == 0.f ? x : result;
}
)"},
    {"cos", "\nINLINE F cos(F x) { return sin_of_turned(x, 1); }\n"},
    {"tan", R"(
INLINE F tan(F x) {
  F r;
  for (int i = 0; i < LANES; ++i) r[i] = (float)__builtin_tan((double)x[i]);
  return r;
}
)"},
};

}  // namespace

std::span<const Word> float_words() {
  return float_functions;
}

}  // namespace ahead::native
