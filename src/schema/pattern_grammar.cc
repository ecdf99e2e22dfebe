#include "schema/pattern_grammar.h"

#include <algorithm>
#include <span>
#include <utility>

#include "winnow/error.h"

namespace winnow {
namespace {

using Kind = Pattern::Kind;

[[noreturn]] void refuse_grammar(const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); }

// Returns an expression for any one character.
std::string any_character(TextForm form) { return form == TextForm::kJson ? "w-char" : "[^\\x00]"; }

std::string bounds_of(std::uint32_t least, std::uint32_t most) {
  return "{" + std::to_string(least) + "," + (most == Pattern::kUnbounded ? "" : std::to_string(most)) + "}";
}

// A writer of patterns that consist of sets and counts, with ^ and $ only at the ends of the outermost alternatives. It
// writes them as they stand.
class PlainWriter {
 public:
  PlainWriter(TextForm form, GrammarRules& rules) : form_(form), rules_(rules) {}

  std::string write(const Pattern& pattern) {
    if (pattern.kind != Kind::kChoice) return alternative(pattern);
    std::string text;
    for (const Pattern& child : pattern.children) text += (text.empty() ? "" : " | ") + alternative(child);
    return "(" + text + ")";
  }

 private:
  std::string alternative(const Pattern& pattern) {
    const std::span<const Pattern> items =
        pattern.kind == Kind::kSequence ? std::span(pattern.children) : std::span(&pattern, 1);
    const bool begins = !items.empty() && items.front().kind == Kind::kBegin;
    const bool ends = items.size() > (begins ? 1U : 0U) && items.back().kind == Kind::kEnd;
    std::string text = begins ? "" : any_character(form_) + "*";
    for (std::size_t i = begins ? 1 : 0; i + (ends ? 1 : 0) < items.size(); ++i) {
      text += (text.empty() ? "" : " ") + inner(items[i]);
    }
    if (!ends) text += (text.empty() ? "" : " ") + any_character(form_) + "*";
    return text.empty() ? "\"\"" : text;
  }

  std::string inner(const Pattern& pattern) {
    switch (pattern.kind) {
      case Kind::kSet: {
        const std::string text = pattern.set.grammar(form_);
        if (text.empty()) refuse_grammar("'pattern' has a class that matches no character");
        constexpr std::size_t kLong = 100;
        return text.size() > kLong ? rules_.add(text) : text;
      }
      case Kind::kSequence: {
        std::string text;
        for (const Pattern& child : pattern.children) text += (text.empty() ? "" : " ") + inner(child);
        return text.empty() ? "\"\"" : "(" + text + ")";
      }
      case Kind::kChoice: {
        std::string text;
        for (const Pattern& child : pattern.children) text += (text.empty() ? "" : " | ") + inner(child);
        return "(" + text + ")";
      }
      case Kind::kRepeat: {
        const std::string text = inner(pattern.children.front());
        if (text == "\"\"") return text;
        return "(" + text + ")" + bounds_of(pattern.least, pattern.most);
      }
      default:
        refuse_grammar("'pattern' cannot be written as it stands");  // is_plain excludes it
    }
  }

  TextForm form_;
  GrammarRules& rules_;
};

bool has_assertion(const Pattern& pattern) {
  return pattern.is_assertion() || std::any_of(pattern.children.begin(), pattern.children.end(), has_assertion);
}

bool is_plain_alternative(const Pattern& pattern) {
  if (pattern.kind != Kind::kSequence) return !has_assertion(pattern) || pattern.kind == Kind::kBegin;
  for (std::size_t i = 0; i < pattern.children.size(); ++i) {
    const Pattern& child = pattern.children[i];
    const bool is_end = i + 1 == pattern.children.size() && child.kind == Kind::kEnd;
    if (!(i == 0 && child.kind == Kind::kBegin) && !is_end && has_assertion(child)) return false;
  }
  return true;
}

bool is_plain(const Pattern& pattern) {
  if (pattern.kind != Kind::kChoice) return is_plain_alternative(pattern);
  return std::all_of(pattern.children.begin(), pattern.children.end(), is_plain_alternative);
}

struct Lengths {
  std::uint64_t least = 0, most = 0;  // most: kAny for any
  static constexpr std::uint64_t kAny = UINT64_MAX;
};

// Returns the least and the most characters of the texts that a pattern matches by itself.
Lengths lengths_of(const Pattern& pattern) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  Lengths all;
  switch (pattern.kind) {
    case Kind::kSet:
      return {1, 1};
    case Kind::kSequence:
      for (const Pattern& child : pattern.children) {
        const Lengths one = lengths_of(child);
        all.least = std::min(all.least + one.least, kMost);
        all.most = all.most == Lengths::kAny || one.most == Lengths::kAny ? Lengths::kAny
                                                                          : std::min(all.most + one.most, kMost);
      }
      return all;
    case Kind::kChoice:
      all = lengths_of(pattern.children.front());
      for (const Pattern& child : pattern.children) {
        const Lengths one = lengths_of(child);
        all = {std::min(all.least, one.least), std::max(all.most, one.most)};
      }
      return all;
    case Kind::kRepeat: {
      const Lengths one = lengths_of(pattern.children.front());
      const bool is_any = one.most == Lengths::kAny || (pattern.most == Pattern::kUnbounded && one.most > 0);
      return {std::min(one.least * pattern.least, kMost),
              is_any ? Lengths::kAny : std::min(one.most * (one.most == 0 ? 0 : pattern.most), kMost)};
    }
    default:
      return all;
  }
}

// Returns whether every alternative has both ends. If one has not, any text may stand around it.
bool has_both_ends(const Pattern& pattern) {
  if (pattern.kind == Kind::kChoice) {
    return std::all_of(pattern.children.begin(), pattern.children.end(), has_both_ends);
  }
  return pattern.kind == Kind::kSequence && pattern.children.size() >= 2 &&
         pattern.children.front().kind == Kind::kBegin && pattern.children.back().kind == Kind::kEnd;
}

// Applies lengths to the count of a pattern: ^[a-z]{2,}$ of 1 to 10 characters becomes ^[a-z]{2,10}$. Returns nullopt
// for patterns of other forms, and if no count is left.
std::optional<Pattern> with_lengths(const Pattern& pattern, std::uint32_t least, std::uint32_t most) {
  if (!has_both_ends(pattern) || pattern.kind != Kind::kSequence || pattern.children.size() != 3) return std::nullopt;
  const Pattern& middle = pattern.children[1];
  if (middle.kind != Kind::kRepeat || middle.children.front().kind != Kind::kSet) return std::nullopt;
  Pattern made = pattern;
  made.children[1].least = std::max(middle.least, least);
  made.children[1].most = std::min(middle.most, most);
  if (made.children[1].least > made.children[1].most) return std::nullopt;
  return made;
}

// Returns the regular expressions of the formats, by name. `is_bounded` bounds the parts that may be of any length.
std::vector<std::pair<const char*, std::string>> format_texts(bool is_bounded) {
  const auto up_to = [&](int n) { return is_bounded ? "{0," + std::to_string(n) + "}" : std::string("*"); };
  // Dates are real days of the years 1000 to 9999; times have an offset, as in RFC 3339.
  const std::string date =
      "(?:[1-9]\\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"
      "02-(?:0[1-9]|1\\d|2[0-8]))|(?:[1-9]\\d(?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29)";
  const std::string hours_and_minutes = "(?:[01]\\d|2[0-3]):[0-5]\\d";
  const std::string time = hours_and_minutes + ":[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[-+]" + hours_and_minutes + ")";
  const std::string seconds = "\\d{1,4}S", minutes = "\\d{1,4}M(?:" + seconds + ")?";
  const std::string part_of_day = "T(?:\\d{1,4}H(?:" + minutes + ")?|" + minutes + "|" + seconds + ")";
  const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]" + up_to(30) + "[A-Za-z0-9])?";
  const std::string hostname = label + "(?:\\." + label + ")" + up_to(4);
  const std::string domain = label + "(?:\\." + label + ")" + up_to(3) + "\\.[A-Za-z]{2,10}";
  const std::string octet = "(?:25[0-5]|2[0-4]\\d|1\\d{2}|[1-9]?\\d)", ipv4 = octet + "(?:\\." + octet + "){3}";
  const std::string h = "[0-9a-fA-F]{1,4}";
  std::string ipv6 = "(?:" + h + ":){7}" + h + "|(?:" + h + ":){1,7}:|:(?::" + h + "){1,7}|::";
  for (int n = 1; n <= 6; ++n) {
    ipv6 += "|(?:" + h + ":){" + std::to_string(n) + "}(?::" + h + "){1," + std::to_string(7 - n) + "}";
  }
  const std::string in_path = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
  const std::string path = "(?:/" + in_path + up_to(40) + ")" + up_to(10);
  const std::string behind_path =
      "(?:\\?(?:" + in_path + "|[/?])" + up_to(120) + ")?(?:#(?:" + in_path + "|[/?])" + up_to(40) + ")?";
  const std::string authority = "//(?:" + hostname + "(?::[1-9]\\d{0,3})?)?";
  const std::string uri = "[A-Za-z][A-Za-z0-9+.-]" + std::string(is_bounded ? "{1,15}" : "+") + ":(?:" + authority +
                          path + "|" + in_path + (is_bounded ? "{1,40}" : "+") + path + ")" + behind_path;
  // A relative reference begins with neither a scheme nor, except in its first form, an authority.
  const std::string relative = "(?:" + authority + path + "|/(?:" + in_path + (is_bounded ? "{1,40}" : "+") + path +
                               ")?|(?:(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})" + (is_bounded ? "{1,40}" : "+") +
                               path + ")?)" + behind_path;
  const std::string email = "[A-Za-z0-9](?:[._%+-]?[A-Za-z0-9])" + up_to(30) + "@" + domain;
  const std::string uuid = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
  return {{"date", date},
          {"time", time},
          {"date-time", date + "T" + time},
          {"duration", "P(?:\\d{1,6}D(?:" + part_of_day + ")?|" + part_of_day + ")"},
          {"uuid", uuid},
          {"email", email},
          {"idn-email", email},
          {"hostname", hostname},
          {"idn-hostname", hostname},
          {"ipv4", ipv4},
          {"ipv6", ipv6},
          {"uri", uri},
          {"url", uri},
          {"iri", uri},
          {"uri-reference", uri + "|" + relative},
          {"json-pointer", "(?:/(?:[^/~]|~[01])" + up_to(100) + ")" + up_to(20)}};
}

}  // namespace

std::optional<std::string> text_grammar(const TextConditions& conditions, TextForm form, GrammarRules& rules,
                                        AutomatonLimits& limits) {
  const std::uint32_t least = conditions.least, most = conditions.most;
  if (most < least) return std::nullopt;
  const bool has_lengths = least > 0 || most != Pattern::kUnbounded;
  const bool is_one = conditions.unmatched.empty() && conditions.steps.empty() && conditions.matched.size() <= 1;
  if (is_one && conditions.matched.empty()) return any_character(form) + bounds_of(least, most);
  if (is_one && is_plain(conditions.matched[0])) {
    const Pattern& pattern = conditions.matched[0];
    const Lengths own =
        has_both_ends(pattern) ? lengths_of(pattern) : Lengths{lengths_of(pattern).least, Lengths::kAny};
    const bool is_held = own.least >= least && (most == Pattern::kUnbounded || own.most <= most);
    if (!has_lengths || is_held) return PlainWriter(form, rules).write(pattern);
    if (const auto made = with_lengths(pattern, least, most)) return PlainWriter(form, rules).write(*made);
  }
  const TextAutomaton automaton(conditions, form, limits);
  if (automaton.is_empty()) return std::nullopt;
  return automaton.grammar(rules);
}

const FormatPatterns* format_patterns(std::string_view name) {
  static const std::vector<FormatPatterns> all = [] {
    std::vector<FormatPatterns> made;
    const auto bounded = format_texts(true), loose = format_texts(false);
    const auto whole = [](const std::string& text) { return Pattern::parse("^(?:" + text + ")$"); };
    for (std::size_t i = 0; i < bounded.size(); ++i) {
      made.push_back({bounded[i].first, whole(bounded[i].second), whole(loose[i].second)});
    }
    return made;
  }();
  for (const FormatPatterns& one : all) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

}  // namespace winnow
