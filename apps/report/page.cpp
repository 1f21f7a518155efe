#include "convoy/apps/report/page.h"

#include <fmt/chrono.h>

#include "convoy/apps/report/page_data.h"
#include "convoy/apps/report/page_files.h"
#include "convoy/version.h"

namespace convoy::report {
namespace {

/// Returns JSON that a script element may contain: without '<', the data cannot end the element.
std::string to_script_text(const Json& json) {
  std::string text;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  }
  return text;
}

}  // namespace

std::string make_page(const std::vector<RunRecord>& runs, int reload_seconds) {
  Json data{{"version", kVersion},
            {"generated", fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)))},
            {"reload_seconds", reload_seconds},
            {"runs", Json::array()}};
  for (const RunRecord& run : runs) data["runs"].push_back(page_data(run));
  const std::pair<std::string_view, std::string> parts[] = {{"@STYLE@", page_files::kStyle},
                                                            {"@D3_LICENSE@", page_files::kD3License},
                                                            {"@D3@", page_files::kD3},
                                                            {"@DATA@", to_script_text(data)},
                                                            {"@SCRIPT@", page_files::kScript}};
  std::string page;
  std::string_view rest = page_files::kPage;
  for (const auto& [name, text] : parts) {  // in the order of the page
    const std::size_t place = rest.find(name);
    page.append(rest.substr(0, place)).append(text);
    rest.remove_prefix(place + name.size());
  }
  return page.append(rest);
}

}  // namespace convoy::report
