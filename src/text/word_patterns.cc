// The patterns are those of libllama's llm_tokenizer_bpe (llama-vocab.cpp), which are those of the models'
// tokenizer.json without what std::regex lacks.
#include "text/word_patterns.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

namespace winnow {
namespace {

constexpr std::array kLoops = std::to_array<std::string_view>({"a.x-4.0",
                                                               "chatglm-bpe",
                                                               "codeshell",
                                                               "command-r",
                                                               "dbrx",
                                                               "deepseek-r1-qwen",
                                                               "exaone",
                                                               "exaone4",
                                                               "f2llmv2",
                                                               "falcon-h1",
                                                               "falcon3",
                                                               "gemma4",
                                                               "gigachat",
                                                               "glm4",
                                                               "glm5",
                                                               "gpt-2",
                                                               "granite-docling",
                                                               "granite-embed-multi-311m",
                                                               "grok-2",
                                                               "hunyuan",
                                                               "jais",
                                                               "jina-de",
                                                               "jina-es",
                                                               "jina-v1-en",
                                                               "jina-v2-code",
                                                               "jina-v2-de",
                                                               "jina-v2-es",
                                                               "jina-v5-nano",
                                                               "kimi-k2",
                                                               "kormo",
                                                               "laguna",
                                                               "lfm2",
                                                               "llama-bpe",
                                                               "llama-v3",
                                                               "llama3",
                                                               "megrez",
                                                               "mellum",
                                                               "mellum2",
                                                               "midm-2.0",
                                                               "minerva-7b",
                                                               "modern-bert",
                                                               "mpt",
                                                               "olmo",
                                                               "phi-2",
                                                               "pixtral",
                                                               "qwen2",
                                                               "qwen35",
                                                               "refact",
                                                               "roberta-bpe",
                                                               "sarvam-moe",
                                                               "smaug-bpe",
                                                               "smollm",
                                                               "solar-open",
                                                               "stablelm2",
                                                               "starcoder",
                                                               "trillion"});

constexpr std::array kWholeWords =
    std::to_array<std::string_view>({"minicpm5", "youtu", "tekken", "granite-embed-multi-97m"});

// Parts of patterns. A space before a word belongs to it.
constexpr char kEndings[] = R"('s|'t|'re|'ve|'m|'ll|'d)";
constexpr char kEndingsOfAnyCase[] = R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))";
constexpr char kLetters[] = R"( ?\p{L}+)";
constexpr char kLettersBehindOne[] = R"([^\r\n\p{L}\p{N}]?\p{L}+)";
constexpr char kAllDigits[] = R"( ?\p{N}+)";
constexpr char kDigit[] = R"(\p{N})";
constexpr char kDigits[] = R"(\p{N}+)";
constexpr char kThreeDigits[] = R"(\p{N}{1,3})";
constexpr char kThreeAsciiDigits[] = R"([0-9][0-9][0-9])";
constexpr char kSigns[] = R"( ?[^\s\p{L}\p{N}]+)";
constexpr char kSignsAndLines[] = R"( ?[^\s\p{L}\p{N}]+[\r\n]*)";
constexpr char kSignsLinesAndSlashes[] = R"( ?[^\s\p{L}\p{N}]+[\r\n/]*)";
constexpr char kLines[] = R"(\s*[\r\n]+)";
constexpr char kLine[] = R"(\s*[\r\n])";
constexpr char kSpacesButOne[] = R"(\s+(?!\S))";
constexpr char kSpaces[] = R"(\s+)";
constexpr char kOneLineEnd[] = R"([\r\n])";
// DeepSeek's: signs are punctuation and symbols, and ASCII's go before ASCII's letters.
constexpr char kSignAndLetters[] = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)";
constexpr char kLettersAndMarks[] = R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)";
constexpr char kPunctuation[] = R"( ?[\p{P}\p{S}]+)";
constexpr char kPunctuationAndLines[] = R"( ?[\p{P}\p{S}]+[\r\n]*)";
constexpr char kChinese[] = R"([一-龥ࠀ-一가-퟿]+)";
constexpr char kChineseAndKana[] = R"([一-龥぀-ゟ゠-ヿ]+)";
// Words of capitals before small letters; others than ASCII's are both.
constexpr char kSmallLast[] = R"([^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+)";
constexpr char kCapitalsFirst[] = R"([^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*)";
constexpr char kSmallLastOrMarks[] = R"([^\r\n\p{L}\p{N}]?((?=[\p{L}\p{M}])([^a-z]))*((?=[\p{L}\p{M}])([^A-Z]))+)";
constexpr char kCapitalsFirstOrMarks[] = R"([^\r\n\p{L}\p{N}]?((?=[\p{L}\p{M}])([^a-z]))+((?=[\p{L}\p{M}])([^A-Z]))*)";
// The same where upper and lower case are no different, as in libllama.
constexpr char kMarksOrLetters[] = R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]*[\p{L}\p{M}]+)";
constexpr char kLettersOrMarks[] = R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+[\p{L}\p{M}]*)";
// BLOOM's: all but white space and some signs.
constexpr char kNoSigns[] = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
// The letters of deepseek-llm.
constexpr char kDeepSeekLetters[] =
    R"(\s?[)"
    R"(A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ)"
    R"(-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ)"
    R"(-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃)"
    R"(]+)";
constexpr char kDeepSeekSigns[] = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr char kAsianLetters[] =
    R"([一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+)";
constexpr char kYoutuScripts[] =
    R"([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+)";

WordRule pattern(std::initializer_list<std::string> alternatives) {
  WordRule rule;
  for (const std::string& one : alternatives) rule.pattern += (rule.pattern.empty() ? "" : "|") + one;
  return rule;
}

WordRule gpt2() { return pattern({kEndings, kLetters, kAllDigits, kSigns, kSpacesButOne}); }

WordRule mixed_case(const std::string& small_last, const std::string& capitals_first, const char* digits) {
  const std::string ending = std::string(kEndingsOfAnyCase) + "?";
  return pattern(
      {small_last + ending, capitals_first + ending, digits, kSignsLinesAndSlashes, kLines, kSpacesButOne, kSpaces});
}

struct Rules {
  std::vector<std::string_view> kinds;
  std::vector<WordRule> rules;
};

const std::vector<Rules>& all_rules() {
  static const std::vector<Rules> all = {
      {{"default"}, {pattern({R"([\p{P}\$\+<=>\^~\|]+)"}), gpt2(), pattern({kDigits}), pattern({kThreeAsciiDigits})}},
      {{"falcon"}, {pattern({R"([\p{P}\$\+<=>\^~\|`]+)"}), gpt2(), pattern({kThreeAsciiDigits})}},
      {{"chameleon"},
       {pattern({R"(<sentinel:[0-9]+>)"}), pattern({R"((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)"}),
        pattern({R"(([\t\n]|    |  ))"}), pattern({kDigit}), pattern({R"([\p{P}!-/:-@\[-`{-~])"}), gpt2()}},
      {{"deepseek-llm"},
       {pattern({kOneLineEnd}), pattern({kDeepSeekLetters}), pattern({kDeepSeekSigns}), pattern({R"(\s+$)"}),
        pattern({kChinese}), pattern({kDigits})}},
      {{"deepseek-coder"},
       {pattern({kOneLineEnd}), pattern({R"(\s?\p{L}+)"}), pattern({R"(\s?\p{P}+)"}), pattern({kChinese}),
        pattern({kDigit})}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
       {pattern({kThreeDigits}), pattern({kChineseAndKana}),
        pattern({kSignAndLetters, kLettersAndMarks, kPunctuationAndLines, kLines, kSpacesButOne, kSpaces})}},
      {{"spark2_5"},
       {pattern({kThreeDigits}), pattern({kChineseAndKana}),
        pattern({kSignAndLetters, kLettersAndMarks, kPunctuation, kOneLineEnd, kSpacesButOne, kSpaces}),
        pattern({kDigit})}},
      {{"afmoe"},
       {{.kind = WordRule::Kind::kThreesOfAllDigits},
        pattern({kAsianLetters}),
        pattern({kSignAndLetters, kLettersAndMarks, kPunctuationAndLines, kLines, kSpacesButOne, kSpaces})}},
      {{"youtu"}, {pattern({kYoutuScripts}), mixed_case(kMarksOrLetters, kLettersOrMarks, kDigit)}},
      {{"tiny_aya", "cohere2moe"},
       {{.kind = WordRule::Kind::kThreesOfAllDigits}, mixed_case(kMarksOrLetters, kLettersOrMarks, kThreeDigits)}},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {mixed_case(kSmallLast, kCapitalsFirst, kThreeDigits)}},
      {{"granite-embed-multi-97m"}, {mixed_case(kSmallLastOrMarks, kCapitalsFirstOrMarks, kThreeDigits)}},
      {{"tekken"},
       {pattern({kSmallLast, kCapitalsFirst, kDigit, kSignsLinesAndSlashes, kLines, kSpacesButOne, kSpaces})}},
      {{"jais-2"},
       {pattern({kEndingsOfAnyCase, kLettersBehindOne, kThreeDigits, kSignsAndLines, kLines, R"(\s{512}(?!\S))",
                 R"(\s{256}(?!\S))", R"(\s{128}(?!\S))", R"(\s{64}(?!\S))", R"(\s{32}(?!\S))", R"(\s{16}(?!\S))",
                 R"(\s{8}(?!\S))", R"(\s{4}(?!\S))", R"(\s{1,2}(?!\S))", R"(\s{1})"})}},
      {{"minicpm5"},
       {pattern({kThreeDigits}),
        pattern({kEndingsOfAnyCase, kLettersBehindOne, kDigits, kSignsAndLines, kLines, kSpacesButOne, kSpaces})}},
      {{"seed-coder"},
       {pattern({kEndingsOfAnyCase, kLettersBehindOne, R"(\p{N}{1})", R"( ?[^\s\p{L}\p{N}\r\n]+)", kLines,
                 kSpacesButOne, kSpaces})}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"},
       {pattern({R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE]))", kLettersBehindOne, kDigit, kSignsAndLines, kLine,
                 kSpacesButOne, kSpaces})}},
      {{"exaone-moe"},
       {pattern({kEndingsOfAnyCase, R"([^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+)", kDigit,
                 R"( ?[^\s\p{L}\p{N}]+[\r\n/]?)", kLine, kSpacesButOne, kSpaces})}},
      {{"ufakzeka"}, {pattern({kLettersBehindOne, kDigit, kSignsAndLines, kLines, kSpacesButOne, kSpaces})}},
      {{"poro-chat", "bloom", "gpt3-finnish"}, {pattern({kNoSigns})}},
      {{"viking"}, {pattern({kNoSigns}), pattern({kDigit})}},
      {{"superbpe"}, {pattern({kDigits}), {.kind = WordRule::Kind::kThreesOfAsciiDigits}}},
  };
  return all;
}

bool is_among(std::span<const std::string_view> kinds, std::string_view kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

}  // namespace

std::span<const WordRule> word_rules(std::string_view kind) {
  for (const Rules& each : all_rules()) {
    if (is_among(each.kinds, kind)) return each.rules;
  }
  return {};
}

bool has_loops_of_libllama(std::string_view kind) { return is_among(kLoops, kind); }

bool takes_whole_words(std::string_view kind) { return is_among(kWholeWords, kind); }

}  // namespace winnow
