#include "text/pattern/unicode_scripts.h"

#include <fmt/format.h>
#include <string_view>

namespace quern {
namespace {

/// The scripts of Unicode 9 but for those that are spelled out below.
constexpr std::string_view names =
    "Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali "
    "Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian "
    "Chakma Cham Cherokee Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Duployan "
    "Egyptian_Hieroglyphs Elbasan Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gurmukhi "
    "Hangul Hanunoo Hatran Hebrew Imperial_Aramaic Inherited Inscriptional_Pahlavi "
    "Inscriptional_Parthian Javanese Kaithi Kannada Kayah_Li Kharoshthi Khmer Khojki Khudawadi Lao Latin "
    "Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Malayalam Mandaic Manichaean Marchen "
    "Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani "
    "Myanmar Nabataean New_Tai_Lue Newa Nko Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian "
    "Old_Permic Old_Persian Old_South_Arabian Old_Turkic Oriya Osage Osmanya Pahawh_Hmong Palmyrene "
    "Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian "
    "Siddham SignWriting Sinhala Sora_Sompeng Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le "
    "Tai_Tham Tai_Viet Takri Tamil Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Ugaritic Vai "
    "Warang_Citi Yi ";

}  // namespace

std::string scripts_pattern() {
  constexpr std::string_view stretch = R"((?:{}++[ \p{{Unknown}}]*+)++)";
  std::string pattern = fmt::format(stretch, R"([\p{sc:Han}\p{sc:Hiragana}\p{sc:Katakana}\x{30FC}])") + "|" +
                        fmt::format(stretch, R"((?:(?![ \x{30FC}])\p{sc:Common}))");
  for (size_t at = 0; at < names.size();) {
    const size_t end = names.find(' ', at);
    pattern += "|" + fmt::format(stretch, fmt::format(R"(\p{{sc:{}}})", names.substr(at, end - at)));
    at = end + 1;
  }
  return pattern;
}

}  // namespace quern
