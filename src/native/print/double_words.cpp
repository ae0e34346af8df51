#include "native/print/prelude.h"

// Polynomials are minimax approximations of ours, as for float32.

namespace ahead::native {
namespace {

constexpr Word double_functions[] = {
    // log(2); the first part times a whole number below 2^21 is exact.
    {"LN2_HIGH", "\n#define LN2_HIGH 0x1.62e42feep-1\n"},
    {"LN2_LOW", "\n#define LN2_LOW 0x1.a39ef35793c76p-33\n"},

    {"nearest", "\nINLINE D nearest(D x) { return x + 0x1.8p52 - 0x1.8p52; }\n", true},
    {"scale",
     R"(
INLINE D scale(D x, D n) {
#if LANES == 8 && defined(__AVX512F__)
  return __builtin_ia32_scalefpd512_mask(x, n, D{}, -1, 4);
#else
  // The bits of 2^52 + 2^51 + a whole number end with that number.
  const D half = nearest(n * 0.5);
  const L a = (L)(half + (0x1.8p52 + 1023)) << 52;
  const L b = (L)((n - half) + (0x1.8p52 + 1023)) << 52;
  return x * (D)a * (D)b;
#endif
}
)",
     true},
    // e^r - 1 for |r| <= log(2) / 2.
    {"expm1_near_zero",
     R"(
INLINE D expm1_near_zero(D r) {
  D p = r * 0x1.1f955318d8b6dp-29 + 0x1.af5ebf6283db1p-26;
  p = p * r + 0x1.27e4c5ab380d5p-22;
  p = p * r + 0x1.71ddf853683ccp-19;
  p = p * r + 0x1.a01a01b0b24adp-16;
  p = p * r + 0x1.a01a01afe53d2p-13;
  p = p * r + 0x1.6c16c16c1445fp-10;
  p = p * r + 0x1.111111110f6aep-7;
  p = p * r + 0x1.555555555555ap-5;
  p = p * r + 0x1.5555555555559p-3;
  p = p * r + 0.5;
  return p * (r * r) + r;
}
)",
     true},
    // What is too small for any number is set to zero, as in float32.
    {"exp",
     R"(
INLINE D exp(D x) {
  const L vanishes = x < -746.;
  const D bounded = at_most(vanishes ? D{} : x, set_d(710.));
  const D n = nearest(bounded * 0x1.71547652b82fep+0);
  const D r = bounded - n * LN2_HIGH - n * LN2_LOW;
  return vanishes ? D{} : scale(1. + expm1_near_zero(r), n);
}
)",
     true},
    {"exp2",
     R"(
INLINE D exp2(D x) {
  const L vanishes = x < -1076.;
  const D bounded = at_most(vanishes ? D{} : x, set_d(1025.));
  const D n = nearest(bounded);
  const D power = scale(1. + expm1_near_zero((bounded - n) * 0x1.62e42fefa39efp-1), n);
  return vanishes ? D{} : power;
}
)",
     true},
    {"expm1",
     R"(
INLINE D expm1(D x) {
  const D bounded = at_least(at_most(x, set_d(710.)), set_d(-40.));
  const D n = nearest(bounded * 0x1.71547652b82fep+0);
  const D e = expm1_near_zero(bounded - n * LN2_HIGH - n * LN2_LOW);
  const D power = (D)((L)(n + (0x1.8p52 + 1022)) << 52);
  const D result = 2. * (e * power + (power - 0.5));
  return x == 0. ? x : result;
}
)",
     true},
    {"WideParts", R"(
struct WideParts { D m, e; };
INLINE WideParts parts(D x) {
#if LANES == 8 && defined(__AVX512F__)
  const D m = __builtin_ia32_getmantpd512_mask(x, 15, D{}, -1, 4);
  const D e = __builtin_ia32_getexppd512_mask(x, D{}, -1, 4);
  return {m, e - __builtin_ia32_getexppd512_mask(m, D{}, -1, 4)};
#else
  const L denormal = x < 0x1p-1022;
  const L bits = (L)(denormal ? x * 0x1p54 : x);
  // Numbers from 0.75 to 1.5 get the exponent 1023 here.
  const UL shifted = (UL)(bits + 0x0008000000000000);
  const D biased = (D)(shifted >> 52 | 0x4330000000000000ul) - 0x1p52;
  const D e = biased - (denormal ? set_d(1077.) : set_d(1023.));
  const L m = bits - (L)(((shifted >> 52) - 1023) << 52);
  const D infinity = set_d(__builtin_inf());
  const D special = x == 0. ? -infinity : x > 0. ? x : set_d(__builtin_nan(""));
  return {(D)m, (x > 0.) & (x < infinity) ? e : special};
#endif
}
)"},
    // log(1 + f) = 2 atanh(s), s = f / (2 + f), for f from -0.25 to 0.5; what is to be added to it
    // is
    // added to its smaller part.
    {"log_near_one",
     R"(
INLINE D log_near_one(D f, D more) {
  const D s = f / (2. + f);
  const D z = s * s;
  D p = z * 0x1.1b87d99d6a1c5p-3 + 0x1.0dca9fa333260p-3;
  p = p * z + 0x1.3b35d0192b7c5p-3;
  p = p * z + 0x1.745c4a5cf2fc6p-3;
  p = p * z + 0x1.c71c7492027dap-3;
  p = p * z + 0x1.24924921e1858p-2;
  p = p * z + 0x1.999999999c1adp-2;
  p = p * z + 0x1.555555555554fp-1;
  return f - (s * (f - z * p) - more);
}
)",
     true},
    {"log",
     R"(
INLINE D log(D x) {
  const WideParts part = parts(x);
  return part.e * LN2_HIGH + log_near_one(part.m - 1., part.e * LN2_LOW);
}
)",
     true},
    {"log1p",
     R"(
INLINE D log1p(D x) {
  const D sum = 1. + x;
  const WideParts part = parts(sum);
  const D lost = scale(x - (sum - 1.), at_most(-part.e, set_d(1023.)));
  const D result = part.e * LN2_HIGH + log_near_one(part.m - 1. + lost, part.e * LN2_LOW);
  const L special = (x == 0.) | (x == __builtin_inf());
  return special ? x : result;
}
)",
     true},
    {"sigmoid",
     R"(
INLINE D sigmoid(D x) {
  const D e = exp(-abs(x));
  return (x < 0. ? e : set_d(1.)) / (1. + e);
}
)",
     true},
    {"tanh",
     R"(
INLINE D tanh(D x) {
  const D y = at_least(abs(x) * -2., set_d(-40.));
  const D n = nearest(y * 0x1.71547652b82fep+0);
  const D p = expm1_near_zero(y - n * LN2_HIGH - n * LN2_LOW);
  const D power = (D)((L)(n + (0x1.8p52 + 1023)) << 52);
  const D e = p * power + (power - 1.);
  return copysign(e / (e + 2.), x);
}
)",
     true},
    // x + x p(x^2) up to 1, and 1 - e^p(x) beyond.
    {"erf",
     R"(
INLINE D erf(D x) {
  const D a = at_most(abs(x), set_d(5.95));
  const D z = a * a;
  D p = z * 0x1.0579b080b085bp-34 - 0x1.386ac304c21f5p-30;
  p = p * z + 0x1.f7a412f214af6p-27;
  p = p * z - 0x1.5f1d36d565b13p-23;
  p = p * z + 0x1.b9def1a05218ap-20;
  p = p * z - 0x1.f4d1df397d0bbp-17;
  p = p * z + 0x1.f9a321a120896p-14;
  p = p * z - 0x1.c02db3d8ed3d8p-11;
  p = p * z + 0x1.565bcd0db02edp-8;
  p = p * z - 0x1.b82ce3128499dp-6;
  p = p * z + 0x1.ce2f21a042b20p-4;
  p = p * z - 0x1.812746b0379e6p-2;
  p = p * z + 0x1.06eba8214db69p-3;
  const D near = p * a + a;
  D q = a * -0x1.31700ed776d09p-35 + 0x1.0bb445b8fa5b8p-30;
  q = q * a - 0x1.627aa0b390476p-27;
  q = q * a + 0x1.b905a3f8704e9p-26;
  q = q * a + 0x1.3921a27992e38p-21;
  q = q * a - 0x1.1b1f43404b4ffp-17;
  q = q * a + 0x1.04f2a1eb22b38p-14;
  q = q * a - 0x1.40e4b565f3ff0p-12;
  q = q * a + 0x1.130b75e597596p-10;
  q = q * a - 0x1.29a350c3260b3p-9;
  q = q * a + 0x1.8e62d5bbb4014p-11;
  q = q * a + 0x1.32dfc0bf63eaap-6;
  q = q * a - 0x1.a417e64a56616p-4;
  q = q * a - 0x1.45fd1da67d3fdp-1;
  q = q * a - 0x1.20dc5208ac964p+0;
  q = q * a - 0x1.e787ddfeff371p-20;
  const D n = nearest(q * 0x1.71547652b82fep+0);
  const D power = (D)((L)(n + (0x1.8p52 + 1023)) << 52);
  const D r = q - n * LN2_HIGH - n * LN2_LOW;
  const D far = 1. - (expm1_near_zero(r) * power + power);
  return copysign(a > 1. ? far : near, x);
}
)",
     true},
    {"sin_of_turned",
     R"(
INLINE D sin_of_turned(D x, int turn) {
#if defined(__FMA__) || defined(__aarch64__)
  // The bits of t end with the number of quarter turns.
  const D t = x * 0x1.45f306dc9c883p-1 + 0x1.8p52;
  const D n = t - 0x1.8p52;
  D r = x - n * 0x1.921fb54442d18p+0;
  r = r - n * 0x1.1a62633145c07p-54;
  r = r + n * 0x1.f1976b7ed8fbcp-110;
  const D z = r * r;
  D s = z * 0x1.5d9300fcf5d06p-33 - 0x1.ae5e663a8ec5ap-26;
  s = s * z + 0x1.71de3577b692bp-19;
  s = s * z - 0x1.a01a019c11994p-13;
  s = s * z + 0x1.111111110f87ap-7;
  s = s * z - 0x1.5555555555549p-3;
  s = s * (z * r) + r;
  D c = z * -0x1.8fae9c5456415p-37 + 0x1.1ee9ebe8e8240p-29;
  c = c * z - 0x1.27e4f809f034ep-22;
  c = c * z + 0x1.a01a019cb1bd1p-16;
  c = c * z - 0x1.6c16c16c1517ep-10;
  c = c * z + 0x1.555555555554cp-5;
  c = c * z - 0.5;
  c = c * z + 1.;
  const L quarter = (L)t + turn;
  const D turned = (quarter & 1) != 0 ? c : s;
  D result = (D)((L)turned ^ (quarter & 2) << 62);
  const bool far = any(abs(x) >= 0x1p20);
#else
  D result;
  const bool far = true;
#endif
  if (__builtin_expect(far, 0))
    for (int i = 0; i < LANES; ++i)
      result[i] = turn ? __builtin_cos(x[i]) : __builtin_sin(x[i]);
  return result;
}
)",
     true},
    {"sin",
     R"(
INLINE D sin(D x) {
  const D result = sin_of_turned(x, 0);
  return x == 0. ? x : result;
}
)",
     true},
    {"cos", "\nINLINE D cos(D x) { return sin_of_turned(x, 1); }\n", true},
    {"log2", "\nLANE_BY_LANE(D, log2, __builtin_log2)\n", true},
    {"log10", "\nLANE_BY_LANE(D, log10, __builtin_log10)\n", true},
    {"erfc", "\nLANE_BY_LANE(D, erfc, __builtin_erfc)\n", true},
    {"tan", "\nLANE_BY_LANE(D, tan, __builtin_tan)\n", true},

    // In double precision, of which float32 needs less than half.
    {"pow", R"(
INLINE F pow(F x, F y) {
  const F whole = trunc(y);
  const F half = y * 0.5f;
  const I odd = (whole == y) & (trunc(half) != half);
  const F size = to_f(exp(to_d(y) * log(to_d(abs(x)))));
  const I one = (y == 0.f) | (x == 1.f) | ((abs(x) == 1.f) & (abs(y) == __builtin_inff()));
  const I defined = (x >= 0.f) | (whole == y) | (abs(x) == __builtin_inff());
  const F negative = (F)((I)x & (int)0x80000000 & odd);
  const F result = (F)((I)size | (I)negative);
  return one ? set_f(1.f) : defined ? result : x == x ? set_f(__builtin_nanf("")) : x;
}
)"},
    {"pow",
     R"(
INLINE D pow(D x, D y) {
  D r;
  for (int i = 0; i < LANES; ++i) r[i] = __builtin_pow(x[i], y[i]);
  return r;
}
)",
     true},
};

}  // namespace

std::span<const Word> double_words() {
  return double_functions;
}

}  // namespace ahead::native
