package redistest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// hostEnv makes this test binary start a server and wait to be killed.
const hostEnv = "LATER_REDISTEST_HOST"

func TestServerDiesWithAKilledTestBinary(t *testing.T) {
	if os.Getenv(hostEnv) != "" {
		fmt.Println("addr", Start(t).Addr())
		io.Copy(io.Discard, os.Stdin)
		return
	}
	t.Parallel()
	host := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	host.Env = append(os.Environ(), hostEnv+"=1", "TMPDIR="+t.TempDir())
	stdin, err := host.StdinPipe() // closed when this binary dies
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	defer host.Wait()
	defer host.Process.Kill()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "addr ")
	if !ok {
		t.Fatalf("the test binary printed %q, %v", line, err)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	host.Process.Kill()
	conn.SetReadDeadline(time.Now().Add(startLimit))
	if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Fatalf("the server did not close the connection: %v", err)
	}
}
