#include "native/print/prelude.h"

// Functions of 16 lanes on AVX-512, where one instruction looks up 16 numbers in a table of 32:
// such a table holds, for each quarter of an octave, the middle and the coefficients of a
// polynomial around it. It takes half the instructions of formulas with exp. The middles are chosen
// so that the values there are nearly float32 numbers.

namespace ahead::native {
namespace {

constexpr Word table_functions[] = {
    // For 0, an interval from 0 to 1/8, then four in each octave; the lowest five bits of what
    // remains
    // of a number when it is shifted are the place in the table.
    {"look_up",
     R"(
#if defined(__AVX512F__)
INLINE F look_up(F low, F high, I place) {
#ifdef __clang__
  return __builtin_ia32_vpermi2varps512(low, place, high);
#else
  return __builtin_shuffle(low, high, place);
#endif
}
#endif
)",
     false, 16},
    {"piecewise",
     R"(
#if defined(__AVX512F__)
INLINE F piecewise(F x, float end, const F* table) {
  const F a = at_most(abs(x), set_f(end));
  const I place = at_least((I)a, set_i(0x3dffffff)) >> 21;
#define COLUMN(k) look_up(table[2 * k], table[2 * k + 1], place)
  const F r = a - COLUMN(0);
  F p = COLUMN(6) * r + COLUMN(5);
  p = p * r + COLUMN(4);
  p = p * r + COLUMN(3);
  p = p * r + COLUMN(2);
  p = p * r + COLUMN(1);
#undef COLUMN
  return with_sign_of(p, x);
}
#endif
)",
     false, 16},
    {"tanh_table",
     R"(
#if defined(__AVX512F__)
static const F tanh_table[] = {
    {0x1.205b68p1f, 0x1.5ff0f8p1f, 0x1.a0145p1f, 0x1.e0729p1f, 0x1.1fbfdp2f, 0x1.60999p2f,
     0x1.9f8418p2f, 0x1.e0a28p2f, 0x1.1f5d8p3f, 0x1.1f5d8p3f, 0x1.1f5d8p3f, 0x1.1f5d8p3f,
     0x1.1f5d8p3f, 0x1.1f5d8p3f, 0x1.1f5d8p3f, 0},
    {0x1.1fe8d8p-3f, 0x1.60215p-3f, 0x1.a02908p-3f, 0x1.dfff3p-3f, 0x1.2047e8p-2f, 0x1.600068p-2f,
     0x1.a086ep-2f, 0x1.df9e18p-2f, 0x1.1f9f5p-1f, 0x1.5f9868p-1f, 0x1.9f855p-1f, 0x1.dff438p-1f,
     0x1.2038ep0f, 0x1.5fe8d8p0f, 0x1.a01248p0f, 0x1.e02de8p0f},
    {0x1.f4cfbp-1f, 0x1.fbd41p-1f, 0x1.fe76f6p-1f, 0x1.ff701ap-1f, 0x1.ffdf66p-1f, 0x1.fffbb4p-1f,
     0x1.ffff66p-1f, 0x1.ffffecp-1f, 0x1.fffffep-1f, 0x1.fffffep-1f, 0x1.fffffep-1f,
     0x1.fffffep-1f, 0x1.fffffep-1f, 0x1.fffffep-1f, 0x1.fffffep-1f, 0},
    {0x1.1e071cp-3f, 0x1.5cb36p-3f, 0x1.9a867ep-3f, 0x1.d76598p-3f, 0x1.18e61ap-2f,
     0x1.52c322p-2f, 0x1.8afab6p-2f, 0x1.bf5f36p-2f, 0x1.04c0dap-1f, 0x1.311518p-1f,
     0x1.57458p-1f, 0x1.77d2cap-1f, 0x1.9e83eep-1f, 0x1.c26e2ep-1f, 0x1.d9cc3cp-1f,
     0x1.e880dcp-1f},
    {0x1.622086p-5f, 0x1.09e592p-6f, 0x1.88733p-8f, 0x1.1fa3a6p-9f, 0x1.04c83p-11f,
     0x1.1302e4p-14f, 0x1.33ff22p-17f, 0x1.4243ccp-20f, 0x1.1e6e2ep-24f, 0x1.1e6e2ep-24f,
     0x1.1e6e2ep-24f, 0x1.1e6e2ep-24f, 0x1.1e6e2ep-24f, 0x1.1e6e2ep-24f, 0x1.1e6e2ep-24f, 1},
    {0x1.f6036p-1f, 0x1.f1283ep-1f, 0x1.eb6d68p-1f, 0x1.e4dfc8p-1f, 0x1.d978fcp-1f,
     0x1.c7f704p-1f, 0x1.b3d2eap-1f, 0x1.9e464cp-1f, 0x1.7b33dap-1f, 0x1.4a365ep-1f,
     0x1.19da58p-1f, 0x1.d844c6p-2f, 0x1.60d106p-2f, 0x1.cef0eep-3f, 0x1.26374ep-3f,
     0x1.6f51e2p-4f},
    {-0x1.5a60cep-5f, -0x1.07b70ep-6f, -0x1.873efap-8f, -0x1.1f4d7ap-9f, -0x1.0464c4p-11f,
     -0x1.12a48cp-14f, -0x1.339bd8p-17f, -0x1.51c72cp-20f, 0x1.b021eep-25f, 0x1.b021eep-25f,
     0x1.b021eep-25f, 0x1.b021eep-25f, 0x1.b021eep-25f, 0x1.b021eep-25f, 0x1.b021eep-25f,
     0x1.44d58cp-22f},
    {-0x1.1872e4p-3f, -0x1.529798p-3f, -0x1.8a079ap-3f, -0x1.be6c5cp-3f, -0x1.03c2eep-2f,
     -0x1.2dafd6p-2f, -0x1.5036bcp-2f, -0x1.69fb7p-2f, -0x1.823e42p-2f, -0x1.8985f6p-2f,
     -0x1.79f014p-2f, -0x1.5aa8d4p-2f, -0x1.1da472p-2f, -0x1.9745fap-3f, -0x1.1043bp-3f,
     -0x1.5e768cp-4f},
    {0x1.b98acep-6f, 0x1.59e3a4p-7f, 0x1.0343b4p-8f, 0x1.7e3198p-10f, 0x1.5b3ec2p-12f,
     0x1.6dd08ap-15f, 0x1.9a9732p-18f, 0x1.a23c66p-21f, 0x1.a219ecp-26f, 0x1.a219ecp-26f,
     0x1.a219ecp-26f, 0x1.a219ecp-26f, 0x1.a219ecp-26f, 0x1.a219ecp-26f, 0x1.a219ecp-26f,
     -0x1.555b0cp-2f},
    {-0x1.3b17ap-2f, -0x1.2e9d6ap-2f, -0x1.201fcp-2f, -0x1.0fe06ap-2f, -0x1.e8c89ep-3f,
     -0x1.985806p-3f, -0x1.41bb12p-3f, -0x1.d826e4p-4f, -0x1.c0c19cp-5f, 0x1.cb06c4p-7f,
     0x1.05f296p-4f, 0x1.84246ep-4f, 0x1.c69cc2p-4f, 0x1.97f7e2p-4f, 0x1.33c1e6p-4f,
     0x1.a7e1b4p-5f},
    {-0x1.940a16p-7f, -0x1.51a534p-8f, -0x1.02f02ap-9f, -0x1.80e046p-11f, -0x1.6b7d7ep-13f,
     -0x1.80013p-16f, -0x1.ae32dap-19f, -0x1.e24bf2p-23f, -0x1.f1f1d8p-24f, -0x1.f1f1d8p-24f,
     -0x1.f1f1d8p-24f, -0x1.f1f1d8p-24f, -0x1.f1f1d8p-24f, -0x1.f1f1d8p-24f, -0x1.f1f1d8p-24f,
     0x1.e80498p-12f},
    {0x1.6bc98ep-4f, 0x1.b174e8p-4f, 0x1.eb33ep-4f, 0x1.15a1e4p-3f, 0x1.32fdcap-3f,
     0x1.4fffe8p-3f, 0x1.5c353ep-3f, 0x1.58836ap-3f, 0x1.3a364ap-3f, 0x1.ea3dc6p-4f,
     0x1.487248p-4f, 0x1.6355c6p-5f, 0x1.cf12eep-9f, -0x1.59a58ap-6f, -0x1.9ba8fcp-6f,
     -0x1.5559c4p-6f},
    {0x1.04da06p-8f, 0x1.f5ff2ep-10f, 0x1.94137ap-11f, 0x1.334248p-12f, 0x1.1e20ecp-14f,
     0x1.384fd2p-17f, 0x1.508394p-20f, 0x1.087a8ap-22f, 0x1.d2ace2p-26f, 0x1.d2ace2p-26f,
     0x1.d2ace2p-26f, 0x1.d2ace2p-26f, 0x1.d2ace2p-26f, 0x1.d2ace2p-26f, 0x1.d2ace2p-26f,
     0x1.0a46bap-3f},
    {0x1.d55284p-4f, 0x1.ba5afap-4f, 0x1.563b64p-4f, 0x1.7f4fdap-4f, 0x1.e2ebcp-5f,
     0x1.069218p-5f, 0x1.baf6e2p-8f, -0x1.18817ep-6f, -0x1.632ce6p-5f, -0x1.f8297ap-5f,
     -0x1.00b96cp-4f, -0x1.b2ede8p-5f, -0x1.074b46p-5f, -0x1.38a838p-7f, 0x1.6b881p-10f,
     0x1.2d6e9ap-8f},
};
#endif
)",
     false, 16},
    {"erf_table",
     R"(
#if defined(__AVX512F__)
static const F erf_table[] = {
    {0x1.1fe328p1f, 0x1.5f8d08p1f, 0x1.9fc9f8p1f, 0x1.df5d8p1f, 0x1.df5d8p1f, 0x1.df5d8p1f,
     0x1.df5d8p1f, 0x1.df5d8p1f, 0x1.df5d8p1f, 0x1.df5d8p1f, 0x1.df5d8p1f, 0x1.df5d8p1f,
     0x1.df5d8p1f, 0x1.df5d8p1f, 0x1.df5d8p1f, 0},
    {0x1.204ep-3f, 0x1.5fb7bp-3f, 0x1.9f785p-3f, 0x1.e07978p-3f, 0x1.207568p-2f, 0x1.5ff6a8p-2f,
     0x1.9fa498p-2f, 0x1.e006e8p-2f, 0x1.200a9p-1f, 0x1.5fb198p-1f, 0x1.a035ap-1f, 0x1.e06868p-1f,
     0x1.2075dp0f, 0x1.606b4p0f, 0x1.9f83bp0f, 0x1.dfa84p0f},
    {0x1.ff3f74p-1f, 0x1.fff28ap-1f, 0x1.ffff6ep-1f, 0x1.fffffcp-1f, 0x1.fffffcp-1f,
     0x1.fffffcp-1f, 0x1.fffffcp-1f, 0x1.fffffcp-1f, 0x1.fffffcp-1f, 0x1.fffffcp-1f,
     0x1.fffffcp-1f, 0x1.fffffcp-1f, 0x1.fffffcp-1f, 0x1.fffffcp-1f, 0x1.fffffcp-1f, 0},
    {0x1.432e46p-3f, 0x1.8900d8p-3f, 0x1.ce748p-3f, 0x1.0a2fb4p-2f, 0x1.3d150cp-2f,
     0x1.7e0c36p-2f, 0x1.bc7876p-2f, 0x1.f875ecp-2f, 0x1.25c158p-1f, 0x1.565b18p-1f,
     0x1.7fd902p-1f, 0x1.a185fcp-1f, 0x1.c725aap-1f, 0x1.e59b02p-1f, 0x1.f4e282p-1f,
     0x1.fbe038p-1f},
    {0x1.d5ef36p-8f, 0x1.395b4ap-11f, 0x1.ef0666p-16f, 0x1.eb5cp-21f, 0x1.eb5cp-21f,
     0x1.eb5cp-21f, 0x1.eb5cp-21f, 0x1.eb5cp-21f, 0x1.eb5cp-21f, 0x1.eb5cp-21f, 0x1.eb5cp-21f,
     0x1.eb5cp-21f, 0x1.eb5cp-21f, 0x1.eb5cp-21f, 0x1.eb5cp-21f, 0x1.20dd76p0f},
    {0x1.1b3268p0f, 0x1.187844p0f, 0x1.1537dep0f, 0x1.11653ep0f, 0x1.0ad416p0f, 0x1.00ad6cp0f,
     0x1.e9f92cp-1f, 0x1.cfc13p-1f, 0x1.a4fd88p-1f, 0x1.686bc6p-1f, 0x1.2a5bp-1f, 0x1.df12c4p-2f,
     0x1.44988cp-2f, 0x1.5b5448p-3f, 0x1.4ba6c8p-4f, 0x1.1430b4p-5f},
    {-0x1.08283cp-6f, -0x1.ad93fep-10f, -0x1.90070cp-14f, -0x1.be370ep-19f, -0x1.be370ep-19f,
     -0x1.be370ep-19f, -0x1.be370ep-19f, -0x1.be370ep-19f, -0x1.be370ep-19f, -0x1.be370ep-19f,
     -0x1.be370ep-19f, -0x1.be370ep-19f, -0x1.be370ep-19f, -0x1.be370ep-19f, -0x1.be370ep-19f,
     0x1.45fd12p-23f},
    {-0x1.3eee9ap-3f, -0x1.815632p-3f, -0x1.c1e7dcp-3f, -0x1.008fc4p-2f, -0x1.2ca8f8p-2f,
     -0x1.60e508p-2f, -0x1.8dc2fap-2f, -0x1.b2cb58p-2f, -0x1.d9ae82p-2f, -0x1.ef25bep-2f,
     -0x1.e51258p-2f, -0x1.c1834cp-2f, -0x1.6dc16ep-2f, -0x1.de26a2p-3f, -0x1.0d27c8p-3f,
     -0x1.02beccp-4f},
    {0x1.6517f8p-6f, 0x1.6fe5a6p-9f, 0x1.9dcbeap-13f, 0x1.12ed98p-17f, 0x1.12ed98p-17f,
     0x1.12ed98p-17f, 0x1.12ed98p-17f, 0x1.12ed98p-17f, 0x1.12ed98p-17f, 0x1.12ed98p-17f,
     0x1.12ed98p-17f, 0x1.12ed98p-17f, 0x1.12ed98p-17f, 0x1.12ed98p-17f, 0x1.12ed98p-17f,
     -0x1.812a24p-2f},
    {-0x1.6a9daep-2f, -0x1.5fe6cep-2f, -0x1.533366p-2f, -0x1.44663p-2f, -0x1.2b4ee2p-2f,
     -0x1.055f54p-2f, -0x1.b6074ap-3f, -0x1.5a93cap-3f, -0x1.9c053ep-4f, -0x1.b1239ep-7f,
     0x1.ffcd22p-5f, 0x1.e5f87ep-4f, 0x1.4d1d5ep-3f, 0x1.430e68p-3f, 0x1.d7ed1ap-4f,
     0x1.152b2ap-4f},
    {-0x1.3d7d5p-6f, -0x1.c49a1cp-9f, -0x1.4809ecp-12f, -0x1.1c5f56p-16f, -0x1.1c5f56p-16f,
     -0x1.1c5f56p-16f, -0x1.1c5f56p-16f, -0x1.1c5f56p-16f, -0x1.1c5f56p-16f, -0x1.1c5f56p-16f,
     -0x1.1c5f56p-16f, -0x1.1c5f56p-16f, -0x1.1c5f56p-16f, -0x1.1c5f56p-16f, -0x1.1c5f56p-16f,
     0x1.e9210ep-13f},
    {0x1.30a3f4p-4f, 0x1.7b0b0ap-4f, 0x1.b5f666p-4f, 0x1.ed9644p-4f, 0x1.1ca758p-3f,
     0x1.44aa92p-3f, 0x1.61f542p-3f, 0x1.72d3bep-3f, 0x1.753444p-3f, 0x1.53029ap-3f,
     0x1.0f2bf2p-3f, 0x1.735918p-4f, 0x1.c6d70ap-6f, -0x1.efec22p-6f, -0x1.9489c8p-5f,
     -0x1.5a11ep-5f},
    {0x1.5aacb6p-7f, 0x1.719fb8p-9f, 0x1.5c4b76p-12f, 0x1.5c7304p-16f, 0x1.5c7304p-16f,
     0x1.5c7304p-16f, 0x1.5c7304p-16f, 0x1.5c7304p-16f, 0x1.5c7304p-16f, 0x1.5c7304p-16f,
     0x1.5c7304p-16f, 0x1.5c7304p-16f, 0x1.5c7304p-16f, 0x1.5c7304p-16f, 0x1.5c7304p-16f,
     0x1.c762c6p-4f},
    {0x1.b882acp-5f, 0x1.93f6c2p-4f, 0x1.72e83p-4f, 0x1.4bed24p-4f, 0x1.2856eep-4f,
     0x1.bb0d96p-5f, 0x1.275a3ap-5f, 0x1.106422p-6f, -0x1.5c337ep-7f, -0x1.53f49cp-5f,
     -0x1.f8a0d2p-5f, -0x1.1c7906p-4f, -0x1.f4efeep-5f, -0x1.f760dcp-6f, -0x1.2c062p-9f,
     0x1.73502p-7f},
};
#endif
)",
     false, 16},
    // For 8 lanes, which have tables of 8: polynomials around the multiples of 9/16, or nearly.
    {"erf_of_8",
     R"(
#if defined(__AVX2__)
INLINE F look_up(F table, I place) {
#ifdef __clang__
  return __builtin_ia32_permvarsf256(table, place);
#else
  return __builtin_shuffle(table, place);
#endif
}
static const F erf_columns[] = {
    {0, 0x1.20016p-1f, 0x1.20244p0f, 0x1.b0aep0f, 0x1.1fa03p1f, 0x1.68702p1f, 0x1.b0464p1f,
     0x1.f8bb8p1f},
    {0, 0x1.25b9cap-1f, 0x1.c6f1e2p-1f, 0x1.f76118p-1f, 0x1.ff3d86p-1f, 0x1.fff70ep-1f,
     0x1.ffffc4p-1f, 1},
    {0x1.20dd74p0f, 0x1.a5060ap-1f, 0x1.4581dp-2f, 0x1.09950ap-4f, 0x1.da464ap-8f,
     0x1.a9f1ecp-12f, 0x1.a5b9e4p-17f, 0x1.ac127ep-23f},
    {0, -0x1.d9a8d8p-2f, -0x1.6e6046p-2f, -0x1.c0e002p-4f, -0x1.0a6e66p-6f, -0x1.2bdc18p-10f,
     -0x1.641a2ap-15f, -0x1.a63a8p-21f},
    {-0x1.81271cp-2f, -0x1.9c3e48p-4f, 0x1.4cd47ep-3f, 0x1.a140aep-4f, 0x1.679b7p-6f,
     0x1.07b5f2p-9f, 0x1.7f4984p-14f, 0x1.0ca1b4p-19f},
    {0, 0x1.759f8ap-3f, 0x1.c83742p-6f, -0x1.95f9ecp-5f, -0x1.3b5634p-6f, -0x1.41364ep-9f,
     -0x1.25162ep-13f, -0x1.ea1d08p-19f},
    {0x1.ce0522p-4f, -0x1.602b8p-7f, -0x1.f60fd2p-5f, 0x1.8033b6p-9f, 0x1.5eeb92p-7f,
     0x1.1ad01ep-9f, 0x1.52cbe6p-13f, 0x1.59c6acp-18f},
    {0, -0x1.736dp-5f, 0x1.e0c09ap-7f, 0x1.7b5984p-7f, -0x1.66c0bap-9f, -0x1.6c3002p-10f,
     -0x1.416a38p-13f, -0x1.b3e842p-18f},
    {-0x1.aada9cp-6f, 0x1.23a86p-7f, 0x1.3c533p-7f, -0x1.8e6ab8p-8f, -0x1.7ff374p-11f,
     0x1.3331dep-11f, 0x1.bce958p-14f, 0x1.958684p-18f},
};
INLINE F erf_of_8(F x) {
  const F a = at_most(abs(x), set_f(4.2f));
  const I place = (I)(a * (16.f / 9.f) + 0x1.8p23f);
#define COLUMN(k) look_up(erf_columns[k], place)
  const F r = a - COLUMN(0);
  F p = COLUMN(8) * r + COLUMN(7);
  p = p * r + COLUMN(6);
  p = p * r + COLUMN(5);
  p = p * r + COLUMN(4);
  p = p * r + COLUMN(3);
  p = p * r + COLUMN(2);
  p = p * r + COLUMN(1);
#undef COLUMN
  return with_sign_of(p, x);
}
#endif
)",
     false, 8},
};

}  // namespace

std::span<const Word> table_words() {
  return table_functions;
}

}  // namespace ahead::native
