package wire

import (
	"cmp"
	"fmt"
	"strings"
)

// Baseboard names one sled by the two numbers printed on its board. The zero
// value names nothing and fails Check. Baseboards are comparable and serve as
// map keys; decoding one from JSON does not check the names.
type Baseboard struct {
	PartNumber   string `json:"part_number"`
	SerialNumber string `json:"serial_number"`
}

// NameError says that a value is no name. It never repeats the value.
type NameError struct {
	// Field is the JSON member at fault, such as "serial_number".
	Field string
}

// Error names the field and the pattern.
func (e *NameError) Error() string {
	return fmt.Sprintf("%s: must match %s", e.Field, NamePattern)
}

// ParseBaseboard reads the printed form, "913-0000019:2FAKE003". The error is a
// *NameError naming the part at fault; text without a colon has no serial number.
func ParseBaseboard(text string) (Baseboard, error) {
	part, serial, _ := strings.Cut(text, ":")
	b := Baseboard{PartNumber: part, SerialNumber: serial}
	if err := b.Check(); err != nil {
		return Baseboard{}, err
	}
	return b, nil
}

// Check returns a *NameError for the first of the two numbers that is no name.
func (b Baseboard) Check() error {
	if !ValidName(b.PartNumber) {
		return &NameError{Field: "part_number"}
	}
	if !ValidName(b.SerialNumber) {
		return &NameError{Field: "serial_number"}
	}
	return nil
}

// Compare orders baseboards: by part number, then by serial number, bytewise.
// This is the order in which members are listed, coordinators are tried and
// subnets are given out. It returns -1, 0 or 1, as slices.SortFunc wants it.
func (b Baseboard) Compare(other Baseboard) int {
	return cmp.Or(
		cmp.Compare(b.PartNumber, other.PartNumber),
		cmp.Compare(b.SerialNumber, other.SerialNumber),
	)
}

// String prints "part:serial", which ParseBaseboard reads back.
func (b Baseboard) String() string {
	return b.PartNumber + ":" + b.SerialNumber
}
