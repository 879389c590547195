// Peers: how many connections each address has. Any thread.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <map>
#include <string>

#include "base/guarded.h"

namespace quern {

class Peers {
 public:
  /// Who holds an address: its bytes, or of IPv6 those of the network that one host may have, where it is not that of
  /// all hosts on a cable.
  static std::string key(const boost::asio::ip::address& address) {
    const auto text = [](const auto& bytes, size_t count) { return std::string(bytes.begin(), bytes.begin() + count); };
    if (address.is_v4()) return text(address.to_v4().to_bytes(), 4);
    const auto v6 = address.to_v6();
    if (v6.is_v4_mapped()) {
      return text(boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, v6).to_bytes(), 4);
    }
    return text(v6.to_bytes(), v6.is_link_local() ? 16 : 8);
  }

  /// False, and nothing has changed, when there are `most` of that peer; 0: no limit.
  bool enter(const std::string& peer, int most) {
    return counts_.with([&](Counts& counts) {
      int& count = counts[peer];
      if (most > 0 && count >= most) return false;
      ++count;
      return true;
    });
  }
  void leave(const std::string& peer) {
    counts_.with([&](Counts& counts) {
      const auto found = counts.find(peer);
      if (--found->second == 0) counts.erase(found);
    });
  }

 private:
  using Counts = std::map<std::string, int>;  // none is 0
  Guarded<Counts> counts_;
};

}  // namespace quern
