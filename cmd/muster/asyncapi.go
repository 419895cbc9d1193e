package main

import (
	"fmt"

	"muster/runtime"
)

// asyncapi is the command `muster asyncapi`.
type asyncapi struct{}

// Help is printed by muster asyncapi --help.
func (asyncapi) Help() string {
	return `The document is JSON, in AsyncAPI 3. It is made from what the functions declare and needs no NATS.`
}

// surfaceVersion is the version of the subjects and bodies as a whole.
const surfaceVersion = "1.0.0"

func (asyncapi) Run(std streams) error {
	doc, err := runtime.AsyncAPI(values(), surfaceVersion)
	if err != nil {
		return fmt.Errorf("make the document: %w", err)
	}
	_, err = fmt.Fprintf(std.out, "%s\n", doc)
	return err
}
