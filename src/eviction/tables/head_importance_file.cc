// Files of head importances: HeadKV's JSON and DuoAttention's matrix.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>

#include "base/json_file.h"
#include "base/numbers.h"
#include "winnow/eviction.h"

namespace winnow {
namespace {

constexpr int kMaxHeads = 1 << 16;  // per model, so that a damaged file cannot take absurd memory

// Reads {"layer-head": [scores], ...}.
HeadImportance from_json(const std::string& path, const std::string& text) {
  const nlohmann::json json = parse_json(path, text);
  if (!json.is_object() || json.empty()) refuse_file(path, "is not of the form {\"layer-head\": [scores], ...}");
  struct Item {
    int layer, head;
    double weight;
  };
  std::vector<Item> items;
  HeadImportance result;
  int n_layer = 0, most_heads = 0;
  for (const auto& [key, value] : json.items()) {
    const std::size_t dash = key.find('-');
    const auto layer = parse_integer<int>(std::string_view(key).substr(0, dash));
    const auto head =
        dash == std::string::npos ? std::nullopt : parse_integer<int>(std::string_view(key).substr(dash + 1));
    if (!layer || !head || *layer < 0 || *head < 0 || *layer >= kMaxHeads || *head >= kMaxHeads) {
      refuse_file(path, "has the key '" + key.substr(0, 64) + "', which is not \"layer-head\"");
    }
    double sum = 0;
    std::size_t n = 1;
    if (value.is_array()) {
      if (value.empty()) refuse_file(path, "has no scores for head '" + key + "'");
      for (const nlohmann::json& score : value) sum += number_of(path, score);
      n = value.size();
    } else {
      sum = number_of(path, value);
    }
    if (sum < 0) refuse_file(path, "has a negative importance for head '" + key + "'");
    items.push_back({*layer, *head, sum / static_cast<double>(n)});
    n_layer = std::max(n_layer, *layer + 1);
    most_heads = std::max(most_heads, *head + 1);
  }
  // Every layer must have its heads from 0 on.
  std::vector<int> n_heads(n_layer, 0), last_head(n_layer, -1);
  for (const Item& item : items) {
    ++n_heads[item.layer];
    last_head[item.layer] = std::max(last_head[item.layer], item.head);
  }
  for (int l = 0; l < n_layer; ++l) {
    if (n_heads[l] == last_head[l] + 1 && n_heads[l] > 0) continue;
    refuse_file(path, "does not name every head of " + std::to_string(n_layer) + " layers x " +
                          std::to_string(most_heads) + " heads");
  }
  for (const int n : n_heads) result.weight.emplace_back(n, 0.0);
  for (const Item& item : items) result.weight[item.layer][item.head] = item.weight;
  return result;
}

// Reads a line for each layer, with a number for each head.
HeadImportance from_matrix(const std::string& path, const std::string& text) {
  HeadImportance result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    std::vector<double> layer;
    const std::string where = "line " + std::to_string(result.weight.size() + 1);
    for (double weight = 0; numbers >> weight;) {
      if (weight < 0) refuse_file(path, "has a negative importance in " + where);
      layer.push_back(weight);
    }
    if (!numbers.eof()) refuse_file(path, "is neither JSON nor a line of numbers for each layer (" + where + ")");
    if (!layer.empty()) result.weight.push_back(std::move(layer));
  }
  if (result.weight.empty()) refuse_file(path, "holds no head importances");
  return result;
}

}  // namespace

HeadImportance HeadImportance::load(const std::string& path) {
  const std::string text = read_input(path, input::kHeadFile);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && (text[first] == '{' || text[first] == '[' || text[first] == '"');
  HeadImportance result = is_json ? from_json(path, text) : from_matrix(path, text);
  double total = 0;
  for (const std::vector<double>& layer : result.weight) total += std::accumulate(layer.begin(), layer.end(), 0.0);
  if (!(total > 0) || !std::isfinite(total)) refuse_file(path, "has no importance above 0");
  return result;
}

}  // namespace winnow
