package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certs is the command `muster certs`.
type certs struct {
	Dir  string        `arg:"" help:"Where to write ca.crt, ca.key, server.crt and server.key."`
	Host []string      `placeholder:"HOST" help:"Name or address by which clients and other servers reach the server, again for each. None is this machine alone: localhost, 127.0.0.1 and ::1."`
	Name string        `default:"server" placeholder:"NAME" help:"Name of the files of the server certificate (default ${default})."`
	For  time.Duration `default:"8760h" placeholder:"DURATION" help:"How long the server certificate is good (default ${default}, a year)."`
}

// Help is printed by muster certs --help.
func (certs) Help() string {
	return `The authority in DIR is made if there is none, and is good for ten years; a server certificate is made anew each time. Keep ca.key away from the servers. An authority of your own does as well: servers need certificates for both server and client use, since they meet each other as both.`
}

// caFor is how long the authority is good.
const caFor = 10 * 365 * 24 * time.Hour

func (c certs) Run() error {
	if c.For <= 0 {
		return &exit{exitUsage, errors.New("--for must be above 0")}
	}
	if filepath.Base(c.Name) != c.Name || c.Name == "ca" || c.Name == "." || c.Name == ".." {
		return &exit{exitUsage, errors.New("--name must be a plain file name other than ca")}
	}
	if len(c.Host) == 0 {
		c.Host = []string{"localhost", "127.0.0.1", "::1"}
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of certificates: %w", err)
	}
	ca, caKey, err := c.authority(time.Now())
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	cert := &x509.Certificate{
		Subject:     pkix.Name{CommonName: c.Host[0]},
		NotAfter:    time.Now().Add(c.For),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range c.Host {
		if ip := net.ParseIP(host); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, host)
		}
	}
	return c.write(c.Name, cert, ca, key, caKey)
}

// authority reads the authority, or makes it.
func (c certs) authority(now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certPEM, err := os.ReadFile(filepath.Join(c.Dir, "ca.crt"))
	if errors.Is(err, os.ErrNotExist) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, nil, fmt.Errorf("make key: %w", err)
		}
		ca := &x509.Certificate{
			Subject: pkix.Name{CommonName: "Muster NATS authority"}, NotAfter: now.Add(caFor),
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		}
		return ca, key, c.write("ca", ca, ca, key, key)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read authority: %w", err)
	}
	keyPEM, err := os.ReadFile(filepath.Join(c.Dir, "ca.key"))
	if err != nil {
		return nil, nil, fmt.Errorf("read the authority's key: %w", err)
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, nil, errors.New("ca.crt or ca.key holds no PEM block")
	}
	ca, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("read authority: %w", err)
	}
	private, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("read the authority's key: %w", err)
	}
	key, ok := private.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, errors.New("ca.key is no ECDSA key")
	}
	return ca, key, nil
}

// write signs a certificate and writes it beside its key.
func (c certs) write(name string, cert, ca *x509.Certificate, key, caKey *ecdsa.PrivateKey) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return fmt.Errorf("make serial number: %w", err)
	}
	cert.SerialNumber = serial
	cert.NotBefore = time.Now().Add(-time.Hour) // for clocks that differ
	der, err := x509.CreateCertificate(rand.Reader, cert, ca, key.Public(), caKey)
	if err != nil {
		return fmt.Errorf("sign certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	if err := keepFile(filepath.Join(c.Dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})); err != nil {
		return err
	}
	file := filepath.Join(c.Dir, name+".crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil { //nolint:gosec // no secret
		return fmt.Errorf("write certificate: %w", err)
	}
	return nil
}
