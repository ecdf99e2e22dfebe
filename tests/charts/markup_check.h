// Checks of well-formed markup, for tests of pages and charts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow::test {

// Returns "" if every element is closed in order, attributes are quoted and entities are known; otherwise the error and
// its place. Contents of <script> and <style> are skipped; HTML's elements without an end are known.
std::string markup_error(std::string_view markup);

// Returns the addresses that a browser would load or link to: everything with "://" except the names of XML's
// vocabularies.
std::vector<std::string> outside_addresses(std::string_view markup);

}  // namespace winnow::test
