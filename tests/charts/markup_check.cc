#include "charts/markup_check.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace winnow::test {
namespace {

constexpr std::array<std::string_view, 6> kVoid = {"meta", "br", "input", "link", "hr", "img"};
constexpr std::array<std::string_view, 5> kEntities = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};

std::string at(std::string_view what, std::string_view markup, std::size_t place) {
  return std::string(what) + " at " + std::to_string(place) + ": " + std::string(markup.substr(place, 60));
}

}  // namespace

std::string markup_error(std::string_view markup) {
  std::vector<std::string> open;
  for (std::size_t i = 0; i < markup.size();) {
    if (markup[i] == '&') {
      const bool is_known = std::any_of(kEntities.begin(), kEntities.end(),
                                        [&](std::string_view entity) { return markup.substr(i).starts_with(entity); });
      if (!is_known) return at("unknown entity", markup, i);
    }
    if (markup[i] == '>') return at("a stray '>'", markup, i);
    if (markup[i] != '<') {
      ++i;
      continue;
    }
    if (markup.substr(i).starts_with("<!doctype")) {
      i = markup.find('>', i) + 1;
      continue;
    }
    const bool is_end = markup.substr(i).starts_with("</");
    std::size_t place = i + (is_end ? 2 : 1);
    std::string name;
    while (place < markup.size() && (std::isalnum(static_cast<unsigned char>(markup[place])) != 0))
      name += markup[place++];
    if (name.empty()) return at("a stray '<'", markup, i);
    // Attributes are skipped together with their quotes.
    bool closes_itself = false;
    while (place < markup.size() && markup[place] != '>') {
      if (markup[place] == '<') return at("'<' inside an element", markup, place);
      closes_itself = markup[place] == '/';
      if (markup[place] == '"') {
        const std::size_t end = markup.find('"', place + 1);
        if (end == std::string_view::npos) return at("an open quote", markup, place);
        if (markup.substr(place, end - place).find('<') != std::string_view::npos)
          return at("'<' in quotes", markup, place);
        place = end;
      }
      ++place;
    }
    if (place >= markup.size()) return at("an element without its end", markup, i);
    i = place + 1;
    if (is_end) {
      if (open.empty() || open.back() != name) return at("</" + name + "> without its beginning", markup, i);
      open.pop_back();
    } else if (!closes_itself && std::find(kVoid.begin(), kVoid.end(), name) == kVoid.end()) {
      open.push_back(name);
      if (name == "script" || name == "style") i = std::min(markup.find("</" + name, i), markup.size());
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is never closed";
}

std::vector<std::string> outside_addresses(std::string_view markup) {
  std::vector<std::string> addresses;
  for (std::size_t i = markup.find("://"); i != std::string_view::npos; i = markup.find("://", i + 1)) {
    const std::size_t begin = markup.find_last_of(" \"'(", i) + 1;
    const std::size_t end = std::min(markup.find_first_of(" \"')", i), markup.size());
    const std::string_view address = markup.substr(begin, end - begin);
    if (!address.starts_with("http://www.w3.org/")) addresses.emplace_back(address);
  }
  return addresses;
}

}  // namespace winnow::test
