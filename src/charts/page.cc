#include "charts/page.h"

#include "charts/svg.h"

namespace winnow::charts {
namespace {

constexpr const char* kStyle = R"css(
:root{color-scheme:light dark;--surface:#ffffff;--raised:#f5f5f7;--text:#1c1c1e;--muted:#63636a;--line:#8a8a90;
--grid:#e4e4e8;--accent:#0072b2;--warn:#fff4d6;--series-1:#0072b2;--series-2:#d55e00;--series-3:#009e73;
--series-4:#b2529b;--series-5:#b8860b;--series-6:#3a9bd0;--series-7:#7a4b2a;--series-8:#555555}
@media (prefers-color-scheme:dark){:root{--surface:#17181b;--raised:#212327;--text:#ececf0;--muted:#a2a2ab;
--line:#6f7078;--grid:#34363c;--accent:#64b5f6;--warn:#3d3415;--series-1:#5aa9e6;--series-2:#ff8a4c;
--series-3:#3ecf9f;--series-4:#df8bcb;--series-5:#e3b341;--series-6:#8fd3ff;--series-7:#c99a76;--series-8:#b5b5bb}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1rem 1.25rem 4rem;background:var(--surface);color:var(--text);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif}
h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0}
h2{font-size:1.3rem;margin:2.5rem 0 .5rem;padding-top:1rem;border-top:1px solid var(--grid)}
h3{font-size:1.05rem;margin:1.5rem 0 .5rem}
a{color:var(--accent)}
nav{display:flex;flex-wrap:wrap;gap:.25rem 1rem;margin:.5rem 0 1rem}
p{margin:.5rem 0;max-width:52rem}
.note{background:var(--warn);border-radius:.4rem;padding:.4rem .75rem;max-width:52rem;overflow-wrap:anywhere}
.scroll{overflow-x:auto;max-width:100%;margin:.75rem 0;background:
linear-gradient(90deg,var(--surface) 1rem,transparent 2rem) 0 0/50% 100% no-repeat local,
linear-gradient(-90deg,var(--surface) 1rem,transparent 2rem) 100% 0/50% 100% no-repeat local,
linear-gradient(90deg,var(--grid),transparent 1rem) 0 0/50% 100% no-repeat scroll,
linear-gradient(-90deg,var(--grid),transparent 1rem) 100% 0/50% 100% no-repeat scroll}
figure{margin:.75rem 0}
figure svg{display:block;height:auto;max-width:100%}
figure.narrow{display:none}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,22rem),1fr));gap:.5rem}
.figures figure svg{width:100%;max-width:34rem}
svg:has(.series:hover) .series:not(:hover){opacity:.15}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}
th{color:var(--muted);font-weight:600;border-bottom-color:var(--line)}
.l{text-align:left}
th button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer;text-align:inherit}
th button::after{content:"\2195";display:inline-block;width:1em;margin-left:.2em;opacity:.35;text-align:center}
th[aria-sort] button::after{opacity:1;color:var(--accent)}
th[aria-sort=ascending] button::after{content:"\2191"}
th[aria-sort=descending] button::after{content:"\2193"}
td.l:first-child{white-space:normal;overflow-wrap:anywhere;min-width:8rem}
.l:first-child{position:sticky;left:0;background:var(--surface)}
tbody tr:hover{background:var(--raised)}
select,input{font:inherit;color:inherit;background:var(--raised);border:1px solid var(--grid);border-radius:.3rem;
padding:.25rem .4rem;max-width:100%}
@media (max-width:46rem){figure.wide{display:none}figure.narrow{display:block}figure.narrow svg{width:100%;max-width:34rem}}
@media (max-width:40rem){body{padding:.5rem .75rem 3rem;font-size:15px}th,td{padding:.2rem .4rem}}
@media print{nav,.controls{display:none}}
)css";

constexpr const char* kSortScript = R"js(
(() => {
  const sort = (table, column, descending) => {
    const body = table.tBodies[0];
    const number = text => parseFloat(text.replace(/,/g, ''));
    const rows = [...body.rows].map(row => {
      const text = row.cells[column].textContent.trim();
      return {row, text, number: number(text)};
    });
    // What is no number, such as a dash, comes last in both directions.
    const numeric = rows.some(r => !isNaN(r.number)) && rows.every(r => !isNaN(r.number) || /^\W*$/.test(r.text));
    const order = descending ? -1 : 1;
    rows.sort((a, b) => {
      if (!numeric) return order * (a.text < b.text ? -1 : a.text > b.text ? 1 : 0);
      if (isNaN(a.number) || isNaN(b.number)) return isNaN(a.number) - isNaN(b.number);
      return order * (a.number - b.number);
    });
    body.append(...rows.map(r => r.row));
  };
  for (const table of document.querySelectorAll('table')) {
    [...table.tHead?.rows[0].cells ?? []].forEach((cell, column) => {
      if (!cell.textContent) return;
      const button = document.createElement('button');
      button.type = 'button';
      button.title = 'sort by this column';
      button.append(...cell.childNodes);
      cell.append(button);
      button.addEventListener('click', () => {
        const descending = cell.ariaSort === 'ascending';
        for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
        cell.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
        sort(table, column, descending);
      });
    });
  }
})();
)js";

}  // namespace

void Page::section(const std::string& heading) {
  const std::string id = "part-" + std::to_string(++n_sections_);
  links_ += "<a href=\"#" + id + "\">" + escaped(heading) + "</a>\n";
  body_ += "<h2 id=\"" + id + "\">" + escaped(heading) + "</h2>\n";
}

void Page::heading(const std::string& text) { body_ += "<h3>" + escaped(text) + "</h3>\n"; }
void Page::paragraph(const std::string& text) { body_ += "<p>" + escaped(text) + "</p>\n"; }
void Page::note(const std::string& text) { body_ += "<p class=\"note\">" + escaped(text) + "</p>\n"; }

void Page::figure(const std::string& wide, const std::string& narrow) {
  body_ += "<figure class=\"wide\">" + wide + "</figure>\n<figure class=\"narrow\">" + narrow + "</figure>\n";
}

void Page::figures(const std::vector<std::string>& svgs) {
  body_ += "<div class=\"figures\">\n";
  for (const std::string& svg : svgs) body_ += "<figure>" + svg + "</figure>\n";
  body_ += "</div>\n";
}

void Page::table(const std::vector<std::string>& titles, const std::vector<std::vector<std::string>>& rows,
                 std::size_t n_left) {
  const auto open = [&](const char* tag, std::size_t column) {
    return std::string("<") + tag + (column < n_left ? " class=\"l\">" : ">");
  };
  has_tables_ = true;
  body_ += "<div class=\"scroll\"><table><thead><tr>";
  for (std::size_t c = 0; c < titles.size(); ++c) body_ += open("th", c) + escaped(titles[c]) + "</th>";
  body_ += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    body_ += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c) {
      const bool is_strong = row[c].starts_with(kStrong);
      const std::string text = escaped(std::string_view(row[c]).substr(is_strong ? 1 : 0));
      body_ += open("td", c) + (is_strong ? "<b>" + text + "</b>" : text) + "</td>";
    }
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
}

void Page::data(const std::string& id, std::string_view json) {
  // "</script>" inside a string would end the element, so "<" is written as a JSON escape.
  std::string safe;
  for (const char c : json) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  scripts_ += "<script type=\"application/json\" id=\"" + escaped(id) + "\">" + safe + "</script>\n";
}

std::string Page::html() const {
  const std::string title = escaped(title_);
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>" +
         title + "</title>\n<style>" + kStyle + styles_ + "</style></head>\n<body>\n<h1>" + title + "</h1>\n" +
         (n_sections_ > 1 ? "<nav>" + links_ + "</nav>\n" : "") + body_ + scripts_ +
         (has_tables_ ? "<script>\n" + std::string(kSortScript) + "</script>\n" : "") + "</body></html>\n";
}

}  // namespace winnow::charts
