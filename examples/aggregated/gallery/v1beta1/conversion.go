package v1beta1

import (
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery"
)

// addConversions registers the conversions between this version and the internal types.
func addConversions(s *runtime.Scheme) error {
	for _, pair := range []struct {
		in, out any
		convert conversion.ConversionFunc
	}{
		{(*Painting)(nil), (*gallery.Painting)(nil), func(in, out any, _ conversion.Scope) error {
			toInternal(in.(*Painting), out.(*gallery.Painting))
			return nil
		}},
		{(*gallery.Painting)(nil), (*Painting)(nil), func(in, out any, _ conversion.Scope) error {
			fromInternal(in.(*gallery.Painting), out.(*Painting))
			return nil
		}},
		{(*PaintingList)(nil), (*gallery.PaintingList)(nil), func(in, out any, _ conversion.Scope) error {
			from, to := in.(*PaintingList), out.(*gallery.PaintingList)
			to.ListMeta = from.ListMeta
			to.Items = make([]gallery.Painting, len(from.Items))
			for i := range from.Items {
				toInternal(&from.Items[i], &to.Items[i])
			}
			return nil
		}},
		{(*gallery.PaintingList)(nil), (*PaintingList)(nil), func(in, out any, _ conversion.Scope) error {
			from, to := in.(*gallery.PaintingList), out.(*PaintingList)
			to.ListMeta = from.ListMeta
			to.Items = make([]Painting, len(from.Items))
			for i := range from.Items {
				fromInternal(&from.Items[i], &to.Items[i])
			}
			return nil
		}},
	} {
		if err := s.AddConversionFunc(pair.in, pair.out, pair.convert); err != nil {
			return err
		}
	}
	return nil
}

func toInternal(in *Painting, out *gallery.Painting) {
	out.ObjectMeta = in.ObjectMeta
	out.Spec = gallery.PaintingSpec{Title: in.Spec.Title, Artist: in.Spec.Painter, Year: in.Spec.Year}
}

func fromInternal(in *gallery.Painting, out *Painting) {
	out.ObjectMeta = in.ObjectMeta
	out.Spec = PaintingSpec{Title: in.Spec.Title, Painter: in.Spec.Artist, Year: in.Spec.Year}
}
