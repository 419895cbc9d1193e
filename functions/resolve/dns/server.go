package dns

import (
	"net"

	mdns "github.com/miekg/dns"
)

// maxSystemServers is how many servers of resolv.conf count, as in the C library.
const maxSystemServers = 3

// systemServers are the servers that a resolv.conf names, none if it cannot be read.
func systemServers(file string) []string {
	conf, err := mdns.ClientConfigFromFile(file)
	if err != nil {
		return nil
	}
	var servers []string
	for _, s := range conf.Servers {
		addr := net.JoinHostPort(s, conf.Port)
		if CheckServer(addr) == nil && len(servers) < maxSystemServers {
			servers = append(servers, addr)
		}
	}
	return servers
}
